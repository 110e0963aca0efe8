package api

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/picks"
)

// foreign returns the owner of a lease that another daemon has granted. ok is false for a lease that
// this daemon may have. Errors are about leases that cannot be forwarded.
func (h *handlers) foreign(w *recorder, r *http.Request, text string) (o roster.Owner, ok bool, err error) {
	id, parsed := picks.ParseLeaseID(text)
	if !parsed || h.Replicas.Grants(id) || len(r.Header[forwardedHeader]) > 0 {
		return o, false, nil // it is looked up here
	}
	if w.loop != nil {
		return o, true, errHandOver
	}
	o, known := h.Replicas.LeaseOwner(r.Context(), id)
	switch {
	case !known:
		return o, true, fault.Errorf(fault.UnknownLease, "lease %q not found: no daemon of the fleet has granted it, or that daemon has ended and the lease with it", text)
	case !o.Live:
		return o, true, fault.Errorf(fault.UnknownLease, "the daemon that has granted lease %q has ended, or lost the store: "+
			"the lease ends by itself at its expires_at, in %v at most", text, max(0, o.Left).Round(time.Second))
	case o.Address == "":
		return o, true, unavailable(&o, "has no address for other daemons (--advertise)")
	}
	return o, true, mayForward(w, r, &o)
}

// mayForward returns an error if the credentials of the caller cannot be forwarded: the owner of the lease
// checks them as those of its own callers.
func mayForward(w *recorder, r *http.Request, o *roster.Owner) error {
	if len(r.Header["Authorization"]) == 0 {
		if w.caller.Name != "" {
			return unavailable(o, "would not know %s, whose identity is a client certificate or a user of a unix socket, which cannot be forwarded", w.caller.Name)
		}
		return nil
	}
	u, err := url.Parse(o.Address)
	if err != nil {
		return unavailable(o, "has no valid address")
	}
	ip := net.ParseIP(u.Hostname())
	if protected := r.TLS != nil || w.policy.Local; protected && u.Scheme != "https" && !ip.IsLoopback() {
		return unavailable(o, "would get the token of the caller without TLS: set --advertise to an https URL there")
	}
	return nil
}

// forwards forwards a request about a lease that another daemon has granted in one hop, and answers with
// what that answers. It reports false for a lease that this daemon may have. done is the body, if there is one.
func (h *handlers) forwards(w *recorder, r *http.Request, id, suffix string, done *Done) (foreign bool, err error) {
	if h.Peers == nil {
		return false, nil
	}
	o, foreign, err := h.foreign(w, r, id)
	if !foreign || err != nil {
		return foreign, err
	}
	var body []byte
	if done != nil {
		if body, err = json.Marshal(done); err != nil {
			return true, err
		}
	}
	path := "/v1/leases/" + id + suffix
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	a, err := h.Peers.do(r, &o, path, body)
	if err != nil {
		return true, err
	}
	header := w.Header()
	header["Cache-Control"] = noStore
	header.Set("Content-Type", a.kind)
	if a.retryAfter != "" {
		header.Set("Retry-After", a.retryAfter)
	}
	writeBody(w, a.status, a.body)
	return true, nil
}

// forwardMany ends leases that other daemons have granted: it sends one request to each of them, and sets
// the results of these leases. It reports for each lease whether it did that.
func (h *handlers) forwardMany(w *recorder, r *http.Request, leases []LeaseDone, results []Verdict) (done []bool, err error) {
	type batch struct {
		owner roster.Owner
		at    []int
	}
	if h.Peers == nil {
		return nil, nil
	}
	done = make([]bool, len(leases))
	batches := make(map[string]*batch)
	for i := range leases {
		o, foreign, err := h.foreign(w, r, leases[i].ID)
		if err == errHandOver { //nolint:errorlint // foreign returns it bare
			return nil, err
		}
		if !foreign {
			continue
		}
		done[i] = true
		if err != nil {
			results[i].Problem = new(problemFor(r, err))
			continue
		}
		b := batches[o.Address]
		if b == nil {
			b = &batch{owner: o}
			batches[o.Address] = b
		}
		b.at = append(b.at, i)
	}
	var group sync.WaitGroup
	for _, b := range batches {
		group.Go(func() {
			some := make([]LeaseDone, len(b.at))
			for k, i := range b.at {
				some[k] = leases[i]
			}
			got, err := h.Peers.endMany(r, &b.owner, some)
			for k, i := range b.at {
				if err != nil {
					results[i].Problem = new(problemFor(r, err))
					continue
				}
				results[i].Lease, results[i].Problem = got[k].Lease, got[k].Problem
			}
		})
	}
	group.Wait()
	return done, nil
}

// endMany ends leases at their owner.
func (p *Peers) endMany(r *http.Request, o *roster.Owner, leases []LeaseDone) ([]Verdict, error) {
	body, err := json.Marshal(LeasesDone{leases})
	if err != nil {
		return nil, err
	}
	a, err := p.do(r, o, "/v1/leases/done", body)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		var problem Problem
		_ = json.Unmarshal(a.body, &problem) // what it does not have is empty
		return nil, unavailable(o, "refuses the request: %d %s", a.status, fault.Clip(problem.Detail))
	}
	var v Verdicts
	if err := json.Unmarshal(a.body, &v); err != nil || len(v.Leases) != len(leases) {
		return nil, unavailable(o, "answers as no lbd does")
	}
	return v.Leases, nil
}
