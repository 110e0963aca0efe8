package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
)

// PickAnswer is the body of one pick.
type PickAnswer struct {
	// Cluster is the one that was asked for, or that the target's routes chose.
	Cluster string `json:"cluster" example:"orders"`
	// Target is the one that was asked for, by its full name.
	Target string `json:"target,omitempty" example:"xds:///shop"`
	PickedEndpoint
	Generation int64 `json:"generation" example:"1795176000042"`
}

// PicksAnswer is the body of picks that were asked for with n.
type PicksAnswer struct {
	// Cluster is absent for picks of a target: each has its own.
	Cluster    string `json:"cluster,omitempty" example:"orders"`
	Target     string `json:"target,omitempty" example:"xds:///shop"`
	Generation int64  `json:"generation" example:"1795176000042"`
	// Picks has at least one.
	Picks []ListedEndpoint `json:"picks"`
	// Dropped counts the picks that each drop category took.
	Dropped map[string]int `json:"dropped"`
	// CircuitBroken counts the picks that the circuit breaker refused.
	CircuitBroken int `json:"circuit_broken"`
}

// ListedEndpoint is one endpoint of a list.
type ListedEndpoint struct {
	// Cluster is the one that the target's routes chose for this pick.
	Cluster string `json:"cluster,omitempty" example:"orders"`
	PickedEndpoint
}

// PickedEndpoint is one endpoint picked.
type PickedEndpoint struct {
	Address  string           `json:"address" example:"10.0.0.7:8080"`
	Hostname string           `json:"hostname,omitempty" example:"orders-7"`
	Locality observe.Locality `json:"locality"`
	Priority int              `json:"priority"`
	// Lease is what POST holds.
	Lease *picks.Lease `json:"lease,omitempty"`
	// Explain is the decision, where explain=true asked for it.
	Explain []picks.Step `json:"explain,omitempty"`
}

// pickHandlers answers /pick.
type pickHandlers struct{ service *service.Service }

var pickParameters = []parameter{
	{name: "cluster"},
	{name: "n"},
	{name: "wait"},
	{name: "wait_for_ready"},
	{name: "hash"},
	{name: "exclude", repeats: true},
	{name: "target"},
	{name: "path"},
	{name: "header.", repeats: true, begins: true},
	{name: "explain"},
	{name: "ttl"},
}

// picking is one request's state. It is used again for others.
type picking struct {
	request picks.Request
	picks   picks.Picks
	many    bool // n was given
	body    []byte
}

var pickings = sync.Pool{New: func() any { return new(picking) }}

// maxKeptBytes is the largest body whose memory is kept for other requests.
const maxKeptBytes = 512 << 10

// get answers with one pick, or n.
//
//	@Summary		Pick an endpoint
//	@Description	One load balancing decision; nothing is held. With n (1 included) the answer holds a list. Exactly one of cluster and target is needed.
//	@Tags			picks
//	@Produce		json,plain
//	@Param			cluster			query		string		false	"the cluster to pick from"													minlength(1)	maxlength(512)
//	@Param			target			query		string		false	"the target whose routes choose the cluster: xds:///NAME, or NAME alone"		minlength(1)	maxlength(512)
//	@Param			path			query		string		false	"with target: the path that routes look at"									minlength(1)	maxlength(4096)	default(/)	example(/package.Service/Method)
//	@Param			header.NAME		query		[]string	false	"with target: the header NAME that routes look at; repeatable, at most 100"	collectionFormat(multi)
//	@Param			n				query		int			false	"picks in one answer"														minimum(1)		maximum(1000)
//	@Param			wait			query		string		false	"how long the pick may queue, at most 60s; 0 never queues"					example(250ms)
//	@Param			wait_for_ready	query		bool		false	"queue in TRANSIENT_FAILURE too"
//	@Param			hash			query		string		false	"request hash key, for policies that hash"									minlength(1)	maxlength(1024)
//	@Param			exclude			query		[]string	false	"addresses to avoid, at most 100: any of an endpoint's"						collectionFormat(multi)
//	@Param			explain			query		bool		false	"tell every step of the decision"
//	@Success		200				{object}	PickOrPicks	"an endpoint, or with n a list; as text/plain, one address a line"
//	@Header			200				{string}	Lbd-Stale	"true where a management server that is away said what the picks were made by"
//	@Header			200				{integer}	Age			"with Lbd-Stale, how many seconds ago the cluster became what it is"
//	@Failure		400,404,414,429,500,503,504	{object}	Problem
//	@Router			/v1/pick [get]
//	@Router			/pick [get]
func (p *pickHandlers) get(w http.ResponseWriter, r *http.Request) error {
	s := pickings.Get().(*picking) //nolint:errcheck // the pool holds nothing else
	defer s.release()
	if err := p.read(s, r.URL.RawQuery, false); err != nil {
		return err
	}
	if s.request.Wait > longWait {
		liftWriteDeadline(w)
	}
	if err := p.service.Pick(r.Context(), &s.request, &s.picks); err != nil {
		return err
	}
	s.write(w, http.StatusOK, acceptsText(r.Header))
	return nil
}

// post answers with leased picks, always in JSON: an address alone could never
// be given back.
//
//	@Summary		Pick an endpoint and lease it
//	@Description	The request counts as in flight until the lease is done or its ttl ends. Exactly one of cluster and target is needed.
//	@Tags			picks
//	@Produce		json
//	@Param			cluster			query		string		false	"the cluster to pick from"													minlength(1)	maxlength(512)
//	@Param			target			query		string		false	"the target whose routes choose the cluster: xds:///NAME, or NAME alone"		minlength(1)	maxlength(512)
//	@Param			path			query		string		false	"with target: the path that routes look at"									minlength(1)	maxlength(4096)	default(/)	example(/package.Service/Method)
//	@Param			header.NAME		query		[]string	false	"with target: the header NAME that routes look at; repeatable, at most 100"	collectionFormat(multi)
//	@Param			ttl				query		string		false	"how long the lease lasts, at most 10m"										default(30s)
//	@Param			n				query		int			false	"picks in one answer"														minimum(1)		maximum(1000)
//	@Param			wait			query		string		false	"how long the pick may queue, at most 60s; 0 never queues"					example(250ms)
//	@Param			wait_for_ready	query		bool		false	"queue in TRANSIENT_FAILURE too"
//	@Param			hash			query		string		false	"request hash key, for policies that hash"									minlength(1)	maxlength(1024)
//	@Param			exclude			query		[]string	false	"addresses to avoid, at most 100: any of an endpoint's"						collectionFormat(multi)
//	@Param			explain			query		bool		false	"tell every step of the decision"
//	@Param			Idempotency-Key	header		string		false	"a repeated request returns the same lease: printable ASCII"				minlength(1)	maxlength(255)
//	@Success		201				{object}	PickOrPicks	"an endpoint with its lease, or with n a list"
//	@Header			201				{string}	Location	"the lease, where n was not given"
//	@Header			201				{string}	Lbd-Stale	"true where a management server that is away said what the picks were made by"
//	@Header			201				{integer}	Age			"with Lbd-Stale, how many seconds ago the cluster became what it is"
//	@Failure		400,403,404,413,414,429,500,503,504	{object}	Problem
//	@Router			/v1/pick [post]
//	@Router			/pick [post]
func (p *pickHandlers) post(w http.ResponseWriter, r *http.Request) error {
	s := pickings.Get().(*picking) //nolint:errcheck // the pool holds nothing else
	defer s.release()
	if err := noBody(w, r); err != nil {
		return err
	}
	s.request.TTL = picks.DefaultTTL
	if err := p.read(s, r.URL.RawQuery, true); err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	s.request.IdempotencyKey = key
	if s.request.Wait > longWait {
		liftWriteDeadline(w)
	}
	if err := p.service.Pick(r.Context(), &s.request, &s.picks); err != nil {
		return err
	}
	if !s.many {
		w.Header().Set("Location", "/v1/leases/"+s.picks.Picks[0].Lease.ID)
	}
	s.write(w, http.StatusCreated, false)
	return nil
}

// read reads the query into s. ttl belongs to leases only.
func (p *pickHandlers) read(s *picking, query string, leased bool) error {
	q := &s.request
	q.N = 1
	q.Wait = p.service.DefaultWait()
	known := pickParameters
	if !leased {
		known = known[:len(known)-1]
	}
	err := readQuery(query, known, func(name string, v value) string {
		switch name {
		case "cluster":
			return v.name(&q.Cluster)
		case "n":
			s.many = true
			return v.integer(&q.N, 1, picks.MaxPicks)
		case "wait":
			return v.duration(&q.Wait, 0, picks.MaxWait)
		case "wait_for_ready":
			return v.boolean(&q.WaitForReady)
		case "hash":
			return v.limited(&q.Hash, MaxHashBytes)
		case "exclude":
			return v.address(&q.Exclude, picks.MaxExclude)
		case "target":
			return v.name(&q.Target)
		case "path":
			return v.path(&q.Path)
		case "header.":
			return v.header(&q.Headers, picks.MaxHeaders)
		case "explain":
			return v.boolean(&q.Explain)
		default:
			return v.duration(&q.TTL, time.Millisecond, picks.MaxTTL)
		}
	})
	if err != nil {
		return err
	}
	switch {
	case q.Target == "" && q.Cluster == "":
		return refusal(fault.InvalidArgument, "cluster or target: one of them is needed")
	case q.Target != "" && q.Cluster != "":
		return refusal(fault.InvalidArgument, "cluster and target: a pick is from one of them, for the routes of a target choose the cluster")
	case q.Target == "" && q.Path != "":
		return refusal(fault.InvalidArgument, "path: means something with target only, whose routes look at it")
	case q.Target == "" && len(q.Headers) > 0:
		return refusal(fault.InvalidArgument, "header.%s: means something with target only, whose routes look at it", clip(q.Headers[0].Name))
	case q.Target != "" && q.Path == "":
		q.Path = "/"
	}
	return nil
}

// idempotencyKey is the header of that name; empty where there is none.
func idempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	good := len(values) == 1 && key != "" && len(key) <= 255
	for i := range len(key) {
		good = good && key[i] >= ' ' && key[i] <= '~'
	}
	if !good {
		return "", refusal(fault.InvalidArgument, "Idempotency-Key: is to be one value of 1 to 255 printable ASCII characters")
	}
	return key, nil
}

// write answers with the picks.
func (s *picking) write(w http.ResponseWriter, status int, text bool) {
	h := w.Header()
	h["Cache-Control"] = noStore
	if s.picks.Stale {
		h.Set("Lbd-Stale", "true")
		h.Set("Age", strconv.FormatInt(int64(s.picks.Age/time.Second), 10))
	}
	switch {
	case text:
		h["Content-Type"] = textType
		s.body = appendAddresses(s.body, &s.picks)
	case s.many:
		h["Content-Type"] = jsonType
		s.body = appendPicks(s.body, &s.picks)
	default:
		h["Content-Type"] = jsonType
		s.body = appendPick(s.body, &s.picks)
	}
	writeBody(w, status, s.body)
}

// release gives s to other requests, without what belongs to this one.
func (s *picking) release() {
	clear(s.picks.Picks)
	*s = picking{
		request: picks.Request{Exclude: s.request.Exclude[:0], Headers: s.request.Headers[:0]},
		picks:   picks.Picks{Picks: s.picks.Picks[:0]},
		body:    s.body[:0],
	}
	if cap(s.body) <= maxKeptBytes {
		pickings.Put(s)
	}
}
