package api

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
)

// PickAnswer is the response for one pick.
type PickAnswer struct {
	// Cluster is the requested cluster, or the one that the routes of the target chose.
	Cluster string `json:"cluster" example:"orders"`
	// Target is the full name of the requested target.
	Target string `json:"target,omitempty" example:"xds:///shop"`
	PickedEndpoint
	Generation int64 `json:"generation" example:"1795176000042"`
}

// PicksAnswer is the response for a request with n.
type PicksAnswer struct {
	// Cluster is absent for a target: each pick has its own.
	Cluster    string `json:"cluster,omitempty" example:"orders"`
	Target     string `json:"target,omitempty" example:"xds:///shop"`
	Generation int64  `json:"generation" example:"1795176000042"`
	// Picks has at least one element.
	Picks []ListedEndpoint `json:"picks"`
	// Dropped has the number of picks that each drop category dropped.
	Dropped map[string]int `json:"dropped"`
	// CircuitBroken is the number of picks that the circuit breaker rejected.
	CircuitBroken int `json:"circuit_broken"`
}

// ListedEndpoint is an endpoint in a list.
type ListedEndpoint struct {
	// Cluster is the one that the routes of the target chose for this pick.
	Cluster string `json:"cluster,omitempty" example:"orders"`
	PickedEndpoint
}

// PickedEndpoint is a picked endpoint.
type PickedEndpoint struct {
	Address  string           `json:"address" example:"10.0.0.7:8080"`
	Hostname string           `json:"hostname,omitempty" example:"orders-7"`
	Locality observe.Locality `json:"locality"`
	Priority int              `json:"priority"`
	// Lease is the lease of a POST.
	Lease *picks.Lease `json:"lease,omitempty"`
	// Explain has the steps of the decision, with explain=true.
	Explain []picks.Step `json:"explain,omitempty"`
}

var pickParameters = []parameter{
	{name: "cluster"},
	{name: "n"},
	{name: "wait"},
	{name: "wait_for_ready"},
	{name: "hash"},
	{name: "exclude", repeats: true},
	{name: "target"},
	{name: "path"},
	{name: "header.", repeats: true, prefix: true},
	{name: "explain"},
	{name: "min_index"},
	{name: "reports"},
	{name: "ttl"},
	{name: "owner"},
}

// picking is the state of a request. It is pooled.
type picking struct {
	request picks.Request
	picks   picks.Picks
	many    bool // n was given
	body    []byte
	// minIndex is the index of the store that picks must use; waits says that wait was given.
	minIndex uint64
	waits    bool
}

var pickings = sync.Pool{New: func() any { return new(picking) }}

// maxKeptBytes is the maximum size of a buffer that stays in the pool.
const maxKeptBytes = 512 << 10

// @Summary     Pick an endpoint
// @Description One load balancing decision, which does not count as a request in flight. With n (also n=1) the response has a list: of each list, every cluster of a route, drop category, locality and endpoint has its share within one pick, unless the policy is least_request, whose picks follow the load. Exactly one of cluster and target is required.
// @Produce     json,plain
// @Param       cluster        query string   false "the cluster to pick from" minlength(1) maxlength(512)
// @Param       target         query string   false "the target whose routes choose the cluster: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       path           query string   false "path of the request, for the routes of target" minlength(1) maxlength(4096) default(/) example(/package.Service/Method)
// @Param       header.NAME    query []string false "header NAME of the request, for the routes of target; repeatable, at most 100" collectionFormat(multi)
// @Param       n              query int      false "number of picks, at most max_picks of the quota of the caller" minimum(1) maximum(1000)
// @Param       wait           query string   false "maximum time that the pick may queue, at most 60s; 0 does not queue. With min_index, also to wait for that" example(250ms)
// @Param       wait_for_ready query bool     false "queue in TRANSIENT_FAILURE as well"
// @Param       hash           query string   false "hash key of the request, for hash policies" minlength(1) maxlength(1024)
// @Param       exclude        query []string false "addresses of endpoints to avoid; repeatable, at most 100" collectionFormat(multi)
// @Param       explain        query bool     false "return every step of the decision"
// @Param       reports        query bool     false "the outcomes are reported with POST /v1/reports: the picks do not count in load reports"
// @Success     200             {object}  PickOrPicks "an endpoint, or a list with n; as text/plain, one address per line"
// @Header      200             {string}  Lbd-Stale   "true if the resources come from a management server that is unreachable"
// @Header      200             {integer} Age         "with Lbd-Stale: seconds since the last change of the cluster"
// @Failure     404,504 {object}  Problem
// @Router      /v1/pick [get]
// @Router      /pick [get]
func (h *handlers) getPick(w *recorder, r *http.Request) error {
	s := pickings.Get().(*picking) //nolint:errcheck // the pool holds nothing else
	defer s.release()
	if err := h.readPick(w, s, r, false); err != nil {
		return err
	}
	if s.request.NoWait && s.slow() {
		return errHandOver
	}
	if err := h.Picks.Pick(r.Context(), &s.request, &s.picks); err != nil {
		return err
	}
	text := acceptsText(r.Header)
	s.render(text)
	s.write(w, http.StatusOK, text)
	return nil
}

// @Summary     Pick an endpoint and lease it
// @Description The request counts as in flight until the lease is ended or expires. Exactly one of cluster and target is required.
// @Param       cluster         query  string   false "the cluster to pick from" minlength(1) maxlength(512)
// @Param       target          query  string   false "the target whose routes choose the cluster: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       path            query  string   false "path of the request, for the routes of target" minlength(1) maxlength(4096) default(/) example(/package.Service/Method)
// @Param       header.NAME     query  []string false "header NAME of the request, for the routes of target; repeatable, at most 100" collectionFormat(multi)
// @Param       ttl             query  string   false "time until the lease expires, at most --max-ttl, 10m by default, and max_ttl of the quota of the caller" default(30s)
// @Param       owner           query  string   false "who holds the lease, as you call it: a host, a pod, a request ID" minlength(1) maxlength(128)
// @Param       n               query  int      false "number of picks, at most max_picks of the quota of the caller" minimum(1) maximum(1000)
// @Param       wait            query  string   false "maximum time that the pick may queue, at most 60s; 0 does not queue. With min_index, also to wait for that" example(250ms)
// @Param       wait_for_ready  query  bool     false "queue in TRANSIENT_FAILURE as well"
// @Param       hash            query  string   false "hash key of the request, for hash policies" minlength(1) maxlength(1024)
// @Param       exclude         query  []string false "addresses of endpoints to avoid; repeatable, at most 100" collectionFormat(multi)
// @Param       explain         query  bool     false "return every step of the decision"
// @Param       Idempotency-Key header string   false "a request of the same caller with the same key, to the same daemon, returns the same lease while it is held; printable ASCII" minlength(1) maxlength(255)
// @Success     201                 {object}  PickOrPicks "an endpoint with its lease, or a list with n"
// @Header      201                 {string}  Location    "the lease, without n"
// @Header      201                 {string}  Lbd-Key-Scope "with Idempotency-Key: daemon, as other daemons of a fleet do not know the key"
// @Header      201                 {string}  Lbd-Stale   "true if the resources come from a management server that is unreachable"
// @Header      201                 {integer} Age         "with Lbd-Stale: seconds since the last change of the cluster"
// @Failure     404,413,504 {object}  Problem
// @Router      /v1/pick [post]
// @Router      /pick [post]
func (h *handlers) postPick(w *recorder, r *http.Request) error {
	s := pickings.Get().(*picking) //nolint:errcheck // the pool holds nothing else
	defer s.release()
	if err := rejectBody(w, r); err != nil {
		return err
	}
	if err := h.Limits.Shedding.rejects(overload.ShedLeases); err != nil {
		return err
	}
	s.request.TTL = h.defaultTTL(w.caller)
	if err := h.readPick(w, s, r, true); err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if s.request.IdempotencyKey = ownKey(w, r, key); key != "" {
		w.Header().Set("Lbd-Key-Scope", "daemon")
	}
	if s.request.NoWait && s.slow() {
		return errHandOver
	}
	if err := h.Picks.Pick(r.Context(), &s.request, &s.picks); err != nil {
		return err
	}
	s.render(false)
	if err := h.Picks.Confirm(&s.picks); err != nil {
		return err
	}
	if !s.many {
		w.Header().Set("Location", "/v1/leases/"+s.picks.Picks[0].Lease.ID.String())
	}
	s.write(w, http.StatusCreated, false)
	return nil
}

// readPick reads the query into s, allows for a long wait, and waits for min_index. ttl and owner are
// only valid for leases.
func (h *handlers) readPick(w *recorder, s *picking, r *http.Request, leased bool) error {
	q := &s.request
	q.N = 1
	q.Wait = h.Limits.Wait
	caller := w.caller
	q.Owner.Identity, q.Account, q.NoWait = caller.Name, w.account, w.loop != nil
	if q.Canceled = caller.Revoked(); caller.Restricted() {
		q.Viewer = caller
	}
	known := pickParameters
	if !leased {
		known = known[:len(known)-2]
	}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "cluster":
			return v.name(&q.Cluster)
		case "n":
			s.many = true
			return h.count(v, &q.N, caller)
		case "wait":
			s.waits = true
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
		case "min_index":
			return v.index(&s.minIndex)
		case "reports":
			return v.boolean(&q.Reported)
		case "owner":
			return v.limited(&q.Owner.Name, MaxOwnerBytes)
		default:
			return h.ttl(v, &q.TTL, caller)
		}
	})
	if err != nil {
		return err
	}
	switch {
	case q.Target == "" && q.Cluster == "":
		return fault.Errorf(fault.InvalidArgument, "cluster or target is required")
	case q.Target != "" && q.Cluster != "":
		return fault.Errorf(fault.InvalidArgument, "set either cluster or target, not both")
	case q.Target == "" && q.Path != "":
		return fault.Errorf(fault.InvalidArgument, "path is only valid with target")
	case q.Target == "" && len(q.Headers) > 0:
		return fault.Errorf(fault.InvalidArgument, "header.%s is only valid with target", fault.Clip(q.Headers[0].Name))
	case q.Reported && leased:
		return fault.Errorf(fault.InvalidArgument, "reports is only valid for picks without leases")
	case q.Target != "" && q.Path == "":
		q.Path = "/"
	}
	if q.Wait > 0 && !caller.Expires.IsZero() {
		q.Wait = min(q.Wait, max(time.Until(caller.Expires), 0)) // see whileWaiting
	}
	if q.Wait > longWait {
		allowWait(w, q.Wait)
	}
	if err = cmp.Or(mayUseCluster(w, q.Cluster), mayUseTarget(w, q.Target)); err != nil || s.minIndex == 0 {
		return err
	}
	return s.awaitIndex(w, r, h)
}

// maxFastPicks is the maximum number of picks that others may have to wait for. Their response is no
// large one, which would need a quota.
const maxFastPicks = 100

// maxRouted is the maximum number of bytes that routes match for a request that others may have to
// wait for: some match regular expressions.
const maxRouted = 256

// slow reports whether the request may take long, or waits for another one with the same key.
func (s *picking) slow() bool {
	q := &s.request
	if q.Explain || q.N > maxFastPicks || q.IdempotencyKey != "" || q.TTL > 0 && q.N > 1 {
		return true
	}
	routed := len(q.Path) // empty without target
	for i := range q.Headers {
		routed += len(q.Headers[i].Name) + len(q.Headers[i].Value)
	}
	return q.N*routed > maxRouted
}

// idempotencyKey returns the Idempotency-Key header; empty if absent.
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
		return "", fault.Errorf(fault.InvalidArgument, "Idempotency-Key: must be one value of 1 to 255 printable ASCII characters")
	}
	return key, nil
}

// ownKey returns an idempotency key that no caller with another account can have; empty for an empty one.
func ownKey(w *recorder, r *http.Request, key string) string {
	if key == "" {
		return ""
	}
	return cmp.Or(w.caller.Name, listen.PeerOf(r)) + "\n" + key
}

// render makes the body of the picks.
func (s *picking) render(text bool) {
	switch {
	case text:
		s.body = appendAddresses(s.body, &s.picks)
	case s.many:
		s.body = appendPicks(s.body, &s.picks)
	default:
		s.body = appendPick(s.body, &s.picks)
	}
}

// write writes the body.
func (s *picking) write(w *recorder, status int, text bool) {
	h := w.Header()
	h["Cache-Control"] = noStore
	if s.picks.Stale {
		h.Set("Lbd-Stale", "true")
		h.Set("Age", strconv.FormatInt(int64(s.picks.Age/time.Second), 10))
	}
	h["Content-Type"] = jsonType
	if text {
		h["Content-Type"] = textType
	}
	writeBody(w, status, s.body)
}

// release clears s and returns it to the pool.
func (s *picking) release() {
	s.picks.Reset()
	*s = picking{
		request: picks.Request{Exclude: s.request.Exclude[:0], Headers: s.request.Headers[:0]},
		picks:   s.picks,
		body:    s.body[:0],
	}
	if cap(s.body) <= maxKeptBytes {
		pickings.Put(s)
	}
}
