package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

// MaxDone is the maximum number of leases that one request can end.
const MaxDone = 1000

// Done is the result of a leased request.
type Done struct {
	// Outcome is success if absent.
	Outcome picks.Outcome `json:"outcome" swaggertype:"string" enums:"success,error,cancelled" default:"success" validate:"optional"`
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

// leases serves /v1/leases.
type leases struct{ service *service.Service }

// get returns the state of a lease.
//
//	@Summary	Get the state of a lease
//	@ID			getLease
//	@Tags		leases
//	@Produce	json
//	@Param		id				path		string	true	"the lease's ID"
//	@Success	200				{object}	picks.LeaseState	"the state of the lease, which may have ended recently"
//	@Failure	400,404,414,500	{object}	Problem
//	@Router		/v1/leases/{id} [get]
func (l *leases) get(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	id, err := pathName(r, "id")
	if err != nil {
		return err
	}
	state, err := l.service.Lease(id)
	return reply(w, state, err)
}

// done ends a lease.
//
//	@Summary		End a lease
//	@Description	Idempotent: a second call returns the same answer. Without a body the outcome is success.
//	@ID				endLease
//	@Tags			leases
//	@Accept			json
//	@Produce		json
//	@Param			id							path		string	true	"the lease's ID"
//	@Param			done						body		Done	false	"how the request ended"
//	@Success		200							{object}	picks.LeaseState	"how the lease ended"
//	@Failure		400,403,404,413,414,415,500	{object}	Problem
//	@Router			/v1/leases/{id}/done [post]
func (l *leases) done(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	id, err := pathName(r, "id")
	if err != nil {
		return err
	}
	var d Done
	if err := readJSON(w, r, MaxLeaseBytes, &d); err != nil {
		return err
	}
	state, err := l.end(id, &d)
	return reply(w, state, err)
}

// end ends one lease.
func (l *leases) end(id string, d *Done) (picks.LeaseState, error) {
	switch d.Outcome {
	case "":
		d.Outcome = picks.Success
	case picks.Success, picks.Failure, picks.Cancelled:
	default:
		return picks.LeaseState{}, refusal(fault.InvalidArgument,
			"outcome: %q is not success, error or cancelled", clip(string(d.Outcome)))
	}
	return l.service.EndLease(id, d.Outcome, d.Load)
}

// renew extends a lease.
//
//	@Summary	Renew a lease
//	@ID			renewLease
//	@Tags		leases
//	@Produce	json
//	@Param		id							path		string	true	"the lease's ID"
//	@Param		ttl							query		string	false	"time until the lease expires, at most 10m"	default(30s)
//	@Success	200							{object}	picks.LeaseState	"the lease with its new expiry"
//	@Failure	400,403,404,413,414,500		{object}	Problem
//	@Router		/v1/leases/{id}/renew [post]
func (l *leases) renew(w http.ResponseWriter, r *http.Request) error {
	id, err := pathName(r, "id")
	if err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	ttl := picks.DefaultTTL
	err = readParameters(r.URL.RawQuery, parameter{name: "ttl", set: func(v value) string {
		return v.duration(&ttl, time.Millisecond, picks.MaxTTL)
	}})
	if err != nil {
		return err
	}
	state, err := l.service.RenewLease(id, ttl)
	return reply(w, state, err)
}

// doneMany ends many leases.
//
//	@Summary		End many leases
//	@Description	Each lease is ended independently: the answer is 200 with a result for each, in the order of the request.
//	@ID				endLeases
//	@Tags			leases
//	@Accept			json
//	@Produce		json
//	@Param			leases					body		LeasesDone	true	"the leases, at most 1000"
//	@Success		200						{object}	Verdicts	"a result for each lease"
//	@Failure		400,403,413,414,415,500	{object}	Problem
//	@Router			/v1/leases/done [post]
func (l *leases) doneMany(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	var many LeasesDone
	if err := readJSON(w, r, MaxLeasesBytes, &many); err != nil {
		return err
	}
	switch {
	case many.Leases == nil:
		return refusal(fault.InvalidArgument, `body: leases is required: {"leases":[{"id":…,"outcome":…}…]}`)
	case len(many.Leases) > MaxDone:
		return refusal(fault.InvalidArgument, "body: %d leases; at most %d are allowed", len(many.Leases), MaxDone)
	}
	verdicts := Verdicts{Leases: make([]Verdict, len(many.Leases))}
	for i := range many.Leases {
		v, done := &verdicts.Leases[i], &many.Leases[i]
		v.ID = done.ID
		state, err := l.end(done.ID, &done.Done)
		if err != nil {
			p := problemOf(refusalOf(r.Context(), err))
			v.Problem = &p
			continue
		}
		v.Lease = &state
	}
	return reply(w, verdicts, nil)
}
