package api

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

const (
	// MaxDone is the maximum number of leases that one request can end by their IDs.
	MaxDone = 1000
	// DefaultLeaseList is the default length of a list of leases.
	DefaultLeaseList = 1000
	// maxLeaseAge is the maximum of older_than.
	maxLeaseAge = 365 * 24 * time.Hour
)

// LeaseList has held leases.
type LeaseList struct {
	// Leases are sorted by ID.
	Leases []picks.LeaseState `json:"leases"`
	// Next is the value of after= for the next part; absent if this is the last one.
	Next string `json:"next,omitempty"`
}

// LeasesDeleted says which leases were ended.
type LeasesDeleted struct {
	// Ended is the number of leases.
	Ended int `json:"ended"`
	// By has the numbers by cluster and owner, the largest first, at most 100.
	By []LeasesOf `json:"by"`
}

// LeasesOf is a number of leases of one owner in one cluster.
type LeasesOf struct {
	picks.EndedLeases

	Leases int `json:"leases"`
}

// Done is the result of a leased request.
type Done struct {
	// Outcome is success if absent.
	Outcome *picks.Outcome `json:"outcome,omitempty" swaggertype:"string" enums:"success,error,cancelled,unreachable" default:"success" validate:"optional"`
	// Load is the load that the upstream reported (ORCA).
	Load *picks.Load `json:"load,omitempty"`
}

// LeaseDone is the result of the request of one lease.
type LeaseDone struct {
	ID string `json:"id"`
	Done
}

// LeasesDone has the results of the requests of many leases.
type LeasesDone struct {
	Leases []LeaseDone `json:"leases"`
}

// Verdicts has the result of each lease, in the order of the request.
type Verdicts struct {
	Leases []Verdict `json:"leases"`
}

// Verdict is the lease as it ended, or the error if it could not be ended.
type Verdict struct {
	ID      string            `json:"id"`
	Lease   *picks.LeaseState `json:"lease,omitempty"`
	Problem *Problem          `json:"problem,omitempty"`
}

// @Summary Get the state of a lease
// @Success 200 {object} picks.LeaseState "the state of the lease, which may have ended recently"
// @Router  /v1/leases/{id} [get]
func (h *handlers) getLease(w *recorder, r *http.Request) error {
	id, err := h.readServedNamed(w, r, "id")
	if err != nil {
		return err
	}
	if foreign, err := h.forwards(w, r, id, "", nil); foreign {
		return err
	}
	state, err := h.lease(id)
	return writeLease(w, state, cmp.Or(err, mayUseLease(w, &state)))
}

// lease returns the state of a lease, whose ID is any text.
func (h *handlers) lease(text string) (picks.LeaseState, error) {
	id, ok := picks.ParseLeaseID(text)
	if !ok {
		return picks.LeaseState{}, picks.UnknownLease(text)
	}
	return h.Leases.Lease(id)
}

// mayUseLease returns an error if the caller of the request that w answers may not see a lease,
// as of one that does not exist: it is of another cluster, and of another caller.
func mayUseLease(w *recorder, state *picks.LeaseState) error {
	if c := w.caller; state.Identity != c.Name && !c.MaySee(state.Cluster) && (state.Leaf == "" || !c.MaySee(state.Leaf)) {
		return picks.UnknownLease(state.ID.String())
	}
	return nil
}

// mayUseLeaseID is mayUseLease for an ID. It costs callers that see all clusters nothing.
func (h *handlers) mayUseLeaseID(w *recorder, id string) error {
	if !w.caller.Restricted() {
		return nil
	}
	state, err := h.lease(id)
	return cmp.Or(err, mayUseLease(w, &state))
}

// @Summary     End a lease
// @Description Idempotent: a second call returns the same answer. Without a body the outcome is success.
// @Param       done body Done false "how the request ended"
// @Success     200 {object} picks.LeaseState "how the lease ended"
// @Router      /v1/leases/{id}/done [post]
func (h *handlers) endLease(w *recorder, r *http.Request) error {
	id, err := readNamed(r, "id")
	if err != nil {
		return err
	}
	d, err := readDone(w, r)
	if err != nil {
		return err
	}
	if foreign, err := h.forwards(w, r, id, "/done", &d); foreign {
		return err
	}
	state, err := h.finishLease(w, id, &d)
	return writeLease(w, state, err)
}

// readDone returns the body of endLease. It decodes one that has only a known outcome without
// encoding/json, which would take longer than the rest of the request.
func readDone(w *recorder, r *http.Request) (d Done, err error) {
	body, err := readBody(w, r, MaxLeaseBytes)
	if err != nil {
		return d, err
	}
	if rest, ok := bytes.CutPrefix(bytes.TrimSpace(body), []byte(`{"outcome":`)); ok && wantJSON(r.Header) == nil {
		rest = bytes.TrimLeft(rest, " ")
		for i := range outcomes {
			if string(rest) == outcomes[i].end {
				d.Outcome = &outcomes[i].outcome
				return d, nil
			}
		}
	}
	var decoded Done
	err = decodeJSON(r.Header, body, &decoded)
	return decoded, err
}

// outcomes has the outcomes, and how a body with only one of them ends.
var outcomes = [...]struct {
	outcome picks.Outcome
	end     string
}{
	{picks.Success, `"` + string(picks.Success) + `"}`},
	{picks.Failure, `"` + string(picks.Failure) + `"}`},
	{picks.Cancelled, `"` + string(picks.Cancelled) + `"}`},
	{picks.Unreachable, `"` + string(picks.Unreachable) + `"}`},
}

// finishLease ends one lease.
func (h *handlers) finishLease(w *recorder, id string, d *Done) (picks.LeaseState, error) {
	if err := h.mayUseLeaseID(w, id); err != nil {
		return picks.LeaseState{}, err
	}
	outcome := picks.Success
	if d.Outcome != nil {
		outcome = *d.Outcome
	}
	switch outcome {
	case picks.Success, picks.Failure, picks.Cancelled, picks.Unreachable:
	default:
		return picks.LeaseState{}, fault.Errorf(fault.InvalidArgument,
			"outcome: %q is not success, error, cancelled or unreachable", fault.Clip(string(outcome)))
	}
	lease, ok := picks.ParseLeaseID(id)
	if !ok {
		return picks.LeaseState{}, picks.UnknownLease(id)
	}
	return h.Leases.EndLease(lease, outcome, d.Load)
}

// @Summary Renew a lease
// @Param   ttl query string false "time until the lease expires, at most --max-ttl, 10m by default, and max_ttl of the quota of the caller" default(30s)
// @Success 200 {object} picks.LeaseState "the lease with its new expiry"
// @Failure 413 {object} Problem
// @Router  /v1/leases/{id}/renew [post]
func (h *handlers) renewLease(w *recorder, r *http.Request) error {
	ttl := h.defaultTTL(w.caller)
	id, err := readNamed(r, "id", parameter{name: "ttl", set: func(v value) string {
		return h.ttl(v, &ttl, w.caller)
	}})
	if err != nil {
		return err
	}
	if err := rejectBody(w, r); err != nil {
		return err
	}
	if foreign, err := h.forwards(w, r, id, "/renew", nil); foreign {
		return err
	}
	if err := h.mayUseLeaseID(w, id); err != nil {
		return err
	}
	lease, ok := picks.ParseLeaseID(id)
	if !ok {
		return picks.UnknownLease(id)
	}
	if w.loop != nil && !h.Leases.RenewsAtOnce(lease, ttl) {
		return errHandOver
	}
	state, err := h.Leases.RenewLease(r.Context(), lease, ttl)
	return writeLease(w, state, err)
}

// @Summary     End many leases
// @Description Each lease is ended independently: the answer is 200 with a result for each, in the order of the request.
// @Param       leases body LeasesDone true "the leases, at most 1000"
// @Success     200 {object} Verdicts "a result for each lease"
// @Router      /v1/leases/done [post]
func (h *handlers) endLeases(w *recorder, r *http.Request) error {
	if err := readParameters(r); err != nil {
		return err
	}
	var many LeasesDone
	if err := readJSON(w, r, MaxLeasesBytes, &many); err != nil {
		return err
	}
	switch {
	case many.Leases == nil:
		return fault.Errorf(fault.InvalidArgument, `body: leases is required: {"leases":[{"id":…,"outcome":…}…]}`)
	case len(many.Leases) > MaxDone:
		return fault.Errorf(fault.InvalidArgument, "body: %d leases; at most %d are allowed", len(many.Leases), MaxDone)
	}
	for i := range many.Leases {
		if many.Leases[i].ID == "" {
			return fault.Errorf(fault.InvalidArgument, "body: leases[%d]: id is required", i)
		}
	}
	verdicts, scope := Verdicts{Leases: make([]Verdict, len(many.Leases))}, scopeOf(w)
	foreign, err := h.forwardMany(w, r, many.Leases, verdicts.Leases)
	if err != nil {
		return err
	}
	for i := range many.Leases {
		v, done := &verdicts.Leases[i], &many.Leases[i]
		if v.ID = done.ID; foreign != nil && foreign[i] {
			continue
		}
		state, err := h.finishLease(w, done.ID, &done.Done)
		if err != nil {
			v.Problem = new(problemFor(r, err))
			continue
		}
		v.Lease = new(state.Within(scope))
	}
	return reply(w, verdicts, nil)
}

// maxEndedGroups is the maximum length of LeasesDeleted.By.
const maxEndedGroups = 100

// @Summary     List held leases
// @Description With the role read, all leases of the clusters that the caller may see; with the role pick, those of its own identity. The leases of a removed cluster are listed by its name.
// @Param       cluster    query string false "only leases of this cluster, also those that an AGGREGATE has sent there" minlength(1) maxlength(512)
// @Param       owner      query string false "only leases with this owner" minlength(1) maxlength(128)
// @Param       identity   query string false "only leases of the caller with this identity" minlength(1) maxlength(64)
// @Param       older_than query string false "only leases that were granted at least so long ago" example(5m)
// @Param       limit      query int    false "maximum number of leases" minimum(1) maximum(10000) default(1000)
// @Param       after      query string false "only leases whose ID sorts after this one" minlength(1) maxlength(512)
// @Success     200 {object} LeaseList "sorted by ID"
// @Router      /v1/leases [get]
func (h *handlers) listLeases(w *recorder, r *http.Request) error {
	f := picks.LeaseFilter{Limit: DefaultLeaseList}
	if err := h.readServed(w, r, append([]parameter{
		{name: "limit", set: func(v value) string { return v.integer(&f.Limit, 1, MaxList) }},
		{name: "after", set: func(v value) string { return v.name(&f.After) }},
	}, leaseFilterParameters(&f)...)...); err != nil {
		return err
	}
	if err := limitLeases(w, &f, access.Read); err != nil {
		return err
	}
	if err := takeTurn(w, r); err != nil {
		return err
	}
	var list LeaseList
	var more bool
	if list.Leases, more = h.Leases.Leases(f); more {
		list.Next = list.Leases[len(list.Leases)-1].ID.String()
	}
	scope := scopeOf(w)
	for i := range list.Leases {
		list.Leases[i] = list.Leases[i].Within(scope)
	}
	return reply(w, list, nil)
}

// @Summary     End the leases of a cluster or an owner
// @Description Ends all held leases that match every parameter, as canceled: what they hold is free at once. At least one parameter is required. The role admin can end all leases of the clusters that the caller may see; the role pick, those of its own identity.
// @Param       cluster    query string false "leases of this cluster, also those that an AGGREGATE has sent there" minlength(1) maxlength(512)
// @Param       owner      query string false "leases with this owner" minlength(1) maxlength(128)
// @Param       identity   query string false "leases of the caller with this identity" minlength(1) maxlength(64)
// @Param       older_than query string false "leases that were granted at least so long ago" example(5m)
// @Success     200 {object} LeasesDeleted "how many leases were ended"
// @Router      /v1/leases [delete]
func (h *handlers) deleteLeases(w *recorder, r *http.Request) error {
	if err := rejectBody(w, r); err != nil {
		return err
	}
	var f picks.LeaseFilter
	if err := readParameters(r, leaseFilterParameters(&f)...); err != nil {
		return err
	}
	if err := limitLeases(w, &f, access.Admin); err != nil {
		return err
	}
	if strings.Trim(r.URL.RawQuery, "&") == "" {
		return fault.Errorf(fault.InvalidArgument, "cluster, owner, identity or older_than is required")
	}
	deleted := LeasesDeleted{By: []LeasesOf{}}
	for of, n := range h.Leases.EndLeases(f, from(w, r)) {
		deleted.Ended += n
		deleted.By = append(deleted.By, LeasesOf{of, n})
	}
	slices.SortFunc(deleted.By, func(a, b LeasesOf) int {
		return cmp.Or(cmp.Compare(b.Leases, a.Leases), strings.Compare(a.String(), b.String()))
	})
	deleted.By = deleted.By[:min(len(deleted.By), maxEndedGroups)]
	w.changes = deleted
	return reply(w, deleted, nil)
}

// leaseFilterParameters are the parameters of a filter.
func leaseFilterParameters(f *picks.LeaseFilter) []parameter {
	return []parameter{
		{name: "cluster", set: func(v value) string { return v.name(&f.Cluster) }},
		{name: "owner", set: func(v value) string { return v.limited(&f.Owner, MaxOwnerBytes) }},
		{name: "identity", set: func(v value) string {
			f.Identity = new(string)
			return v.limited(f.Identity, maxIdentityBytes)
		}},
		{name: "older_than", set: func(v value) string { return v.duration(&f.OlderThan, 0, maxLeaseAge) }},
	}
}

// limitLeases limits a filter to the leases that the caller may use: without the role, its own only.
func limitLeases(w *recorder, f *picks.LeaseFilter, role access.Roles) error {
	c := w.caller
	if c.Restricted() {
		f.MaySee = c.MaySee
	}
	if hasRole(w, role) {
		return nil
	}
	if c.Name == "" || f.Identity != nil && *f.Identity != c.Name {
		return listen.Require(c, w.policy, role)
	}
	f.Identity = &c.Name
	return nil
}

// maxIdentityBytes is the maximum length of the name of an identity.
const maxIdentityBytes = 64
