package api

import (
	"net/http"
	"time"

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

// @Summary Get the state of a lease
// @Success 200 {object} picks.LeaseState "the state of the lease, which may have ended recently"
// @Router  /v1/leases/{id} [get]
func (h *handlers) getLease(w http.ResponseWriter, r *http.Request) error {
	id, err := readNamed(r, "id")
	if err != nil {
		return err
	}
	state, err := h.service.Lease(id)
	return reply(w, state, err)
}

// @Summary     End a lease
// @Description Idempotent: a second call returns the same answer. Without a body the outcome is success.
// @Accept      json
// @Param       done body Done false "how the request ended"
// @Success     200 {object} picks.LeaseState "how the lease ended"
// @Router      /v1/leases/{id}/done [post]
func (h *handlers) endLease(w http.ResponseWriter, r *http.Request) error {
	id, err := readNamed(r, "id")
	if err != nil {
		return err
	}
	var d Done
	if err := readJSON(w, r, MaxLeaseBytes, &d); err != nil {
		return err
	}
	state, err := h.finishLease(id, &d)
	return reply(w, state, err)
}

// finishLease ends one lease.
func (h *handlers) finishLease(id string, d *Done) (picks.LeaseState, error) {
	switch d.Outcome {
	case "":
		d.Outcome = picks.Success
	case picks.Success, picks.Failure, picks.Cancelled:
	default:
		return picks.LeaseState{}, fault.Errorf(fault.InvalidArgument,
			"outcome: %q is not success, error or cancelled", clip(string(d.Outcome)))
	}
	return h.service.EndLease(id, d.Outcome, d.Load)
}

// @Summary Renew a lease
// @Param   ttl query string false "time until the lease expires, at most 10m" default(30s)
// @Success 200 {object} picks.LeaseState "the lease with its new expiry"
// @Failure 413 {object} Problem
// @Router  /v1/leases/{id}/renew [post]
func (h *handlers) renewLease(w http.ResponseWriter, r *http.Request) error {
	ttl := picks.DefaultTTL
	id, err := readNamed(r, "id", parameter{name: "ttl", set: func(v value) string {
		return v.duration(&ttl, time.Millisecond, picks.MaxTTL)
	}})
	if err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	state, err := h.service.RenewLease(id, ttl)
	return reply(w, state, err)
}

// @Summary     End many leases
// @Description Each lease is ended independently: the answer is 200 with a result for each, in the order of the request.
// @Accept      json
// @Param       leases body LeasesDone true "the leases, at most 1000"
// @Success     200 {object} Verdicts "a result for each lease"
// @Router      /v1/leases/done [post]
func (h *handlers) endLeases(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
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
	verdicts := Verdicts{Leases: make([]Verdict, len(many.Leases))}
	for i := range many.Leases {
		v, done := &verdicts.Leases[i], &many.Leases[i]
		v.ID = done.ID
		state, err := h.finishLease(done.ID, &done.Done)
		if err != nil {
			p := problemOf(refusalOf(r.Context(), err))
			v.Problem = &p
			continue
		}
		v.Lease = &state
	}
	return reply(w, verdicts, nil)
}
