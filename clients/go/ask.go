package lbdclient

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// targetPrefix begins the names that are targets, whose routes choose the cluster.
	targetPrefix = "xds:///"
	// maxAsked is the number of batches that a cluster has, at most: one for each hash key, or path and headers.
	maxAsked = 1000
	// excluding begins the part of a query for another try.
	excluding = "&exclude="
	// maxHash is the length of a hash key. What comes after it does not count.
	maxHash = 1024
	// maxName and maxQuery are the lengths of the name of a cluster, and of what a request asks, at most. lbd permits 512
	// bytes, and 32 KiB with all that a retry excludes: it says nothing that a client understands to what is much longer.
	maxName, maxQuery = 512, 24 << 10
	// maxAskedBytes is the length of the queries of the batches that a cluster has, about.
	maxAskedBytes = 4 << 20
)

// Host says what requests to a host are for.
type Host struct {
	// Cluster is the cluster. Default: what is before .lbd in the host, unless Target is set.
	Cluster string
	// Target is the name of a target instead, such as shop for xds:///shop: its routes choose the cluster by the path of
	// the request, and by Headers: those that the routes match, or that their hash policies need. Others are not sent to
	// lbd.
	Target  string
	Headers []string
	// Hash says what the hash key of a request is, for a cluster with a hash policy such as ring_hash: header:NAME or
	// cookie:NAME. Requests without it go to any endpoint.
	Hash string
}

// Ask is what a program asks of lbd for one request. [WithAsk] adds it to the context of the request.
type Ask struct {
	// Hash is the hash key, instead of that of [Host].
	Hash string
	// Path and Header are what the routes of a target match. Default: path and headers of the request, as [Host] says.
	Path   string
	Header http.Header
	// Choice, unless it is nil, is where [Transport] writes what lbd has chosen for each try: in the end that for the last
	// one.
	Choice *Choice
}

type askKey struct{}

// WithAsk returns a context for a request of [Transport], or for [Client.Pick].
func WithAsk(ctx context.Context, ask Ask) context.Context {
	return context.WithValue(ctx, askKey{}, &ask)
}

// AskOf returns what WithAsk has added last; nil for nothing.
func AskOf(ctx context.Context) *Ask {
	ask, _ := ctx.Value(askKey{}).(*Ask)
	return ask
}

// Choice is what lbd has chosen for a try.
type Choice struct {
	Cluster  string   `json:"cluster"` // of a target, the one that its routes chose
	Address  string   `json:"address"`
	Hostname string   `json:"hostname"`
	Locality Locality `json:"locality"`
	Priority int      `json:"priority"`
	// Attempt is 1 for the first try of a request.
	Attempt int `json:"-"`
}

// Locality is where an endpoint is.
type Locality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone"`
}

// name returns the cluster of requests to the host, or the target with its prefix.
func (h *Host) name(host string) (string, error) {
	kind, key, ok := strings.Cut(h.Hash, ":")
	switch {
	case h.Hash != "" && (!ok || key == "" || kind != "header" && kind != "cookie"):
		return "", fmt.Errorf("host %s: hash: %q is not header:NAME or cookie:NAME", host, h.Hash)
	case h.Target != "" && h.Cluster != "":
		return "", fmt.Errorf("host %s: set either cluster or target, not both", host)
	case h.Target != "":
		return targetPrefix + strings.TrimPrefix(h.Target, targetPrefix), nil
	}
	return cmp.Or(h.Cluster, strings.TrimSuffix(host, suffix)), nil
}

// query returns what lbd has to know of a request beside its cluster, as a part of a URL; request may be nil.
func (h *Host) query(name string, request *http.Request, ask *Ask) string {
	if ask == nil {
		ask = &Ask{}
	}
	hash, query := ask.Hash, ""
	if hash == "" && request != nil {
		kind, key, _ := strings.Cut(h.Hash, ":")
		if kind == "header" {
			hash = request.Header.Get(key)
		} else if cookie, err := request.Cookie(key); err == nil {
			hash = cookie.Value
		}
	}
	if hash != "" {
		query = "&hash=" + url.QueryEscape(hash[:min(len(hash), maxHash)])
	}
	if !strings.HasPrefix(name, targetPrefix) {
		return query
	}
	path, header := ask.Path, ask.Header
	if request != nil {
		path = cmp.Or(path, request.URL.EscapedPath())
		if header == nil {
			header = request.Header
		}
	}
	query += "&path=" + url.QueryEscape(cmp.Or(path, "/"))
	keys := h.Headers
	if ask.Header != nil {
		keys = slices.Sorted(maps.Keys(ask.Header))
	}
	for _, key := range keys {
		for _, value := range header[textproto.CanonicalMIMEHeaderKey(key)] {
			query += "&header." + url.QueryEscape(key) + "=" + url.QueryEscape(value)
		}
	}
	return query
}

// asked has the batches of a cluster for what requests ask, all of one generation: those that were used last.
type asked struct {
	mu            sync.Mutex
	last          string // query that lbd has answered last, or the first one, without what it excludes
	generation    int64
	recent, older map[string]*batch     // by query
	bytes         int                   // of the queries that were added to recent
	calls         map[string]*askedCall // under way, by query
}

// askedCall is a call to lbd that all requests with a query wait for.
type askedCall struct {
	ended chan struct{}
	batch *batch // written before ended is closed, as is err
	err   error
}

// get returns the batch for a query; nil if there is none.
func (a *asked) get(query string) *batch {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.recent[query]
	if b == nil {
		if b = a.older[query]; b != nil {
			a.add(b)
		}
	}
	if b != nil {
		a.answered(query)
	}
	return b
}

// answered remembers a query, with mu held. One for which lbd has no route, or that it rejects, is not answered: it must
// not keep others from their batch.
func (a *asked) answered(query string) {
	if !strings.Contains(query, excluding) {
		a.last = query
	}
}

func (a *asked) add(b *batch) {
	if len(a.recent) >= maxAsked/2 || a.bytes >= maxAskedBytes/2 || a.recent == nil {
		a.recent, a.older, a.bytes = map[string]*batch{}, a.recent, 0
	}
	if a.recent[b.query] == nil {
		a.bytes += len(b.query)
	}
	a.recent[b.query] = b
}

// put adds a batch. One of a later generation replaces all others, and so does one that is published, which is of the
// generation that lbd has: one of an earlier generation comes too late.
func (a *asked) put(b *batch, published bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered(b.query)
	if b.generation > a.generation || published && b.generation != 0 && b.generation != a.generation {
		a.generation, a.recent, a.older = b.generation, nil, nil
	}
	if b.generation == 0 || b.generation == a.generation {
		a.add(b)
	}
}

// clear forgets all.
func (a *asked) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.generation, a.recent, a.older = "", 0, nil, nil
}

// query returns that of the next batch.
func (a *asked) query() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// ask returns the batch for a query: b if it is not old. Without an answer of lbd, it may be older, or the last one of
// the cluster if any will do.
func (c *cluster) ask(ctx context.Context, query string, b, last *batch, others bool) (*batch, error) {
	at := now()
	if b != nil && (at < b.until || c.err.Load() != nil && at-b.made < c.client.config.StaleFor) {
		return b, nil
	}
	fresh, err := c.fetchAsked(ctx, query)
	if err == nil {
		return fresh, nil
	}
	rejection := errorOf(c.name, err)
	if rejection.Code != "" || ctx.Err() != nil || c.client.ctx.Err() != nil {
		return nil, rejection
	}
	c.err.Store(rejection)
	switch {
	case b != nil && at-b.made < c.client.config.StaleFor:
		return b, nil
	case others && c.target == "" && last.generation != 0:
		return last, nil // better another endpoint than none
	}
	return nil, rejection
}

// fetchAsked gets a batch for a query from lbd, with one call for all requests that need it at the same time.
func (c *cluster) fetchAsked(ctx context.Context, query string) (*batch, error) {
	a := &c.asked
	a.mu.Lock()
	if b := a.recent[query]; b != nil && now() < b.until { // of a call that has just ended
		a.mu.Unlock()
		return b, nil
	}
	under := a.calls[query]
	if under == nil {
		under = &askedCall{ended: make(chan struct{})}
		a.calls[query] = under
		c.client.start(func() {
			if under.batch, under.err = c.fetch(c.client.ctx, query, minBatch); under.err == nil {
				a.put(under.batch, false)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.calls, query)
			close(under.ended)
		})
	}
	a.mu.Unlock()
	select {
	case <-under.ended:
		return under.batch, under.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.client.ctx.Done():
		return nil, c.client.closedError(c.name)
	}
}

// take takes the next element of the batch.
func (p *Pick) take(ctx context.Context) error {
	at := now()
	if b := p.cluster.usable(at); b != nil && b.query == "" {
		return p.takeFrom(b, at, nil)
	}
	return p.wait(ctx, "", true)
}

// takeAsked takes an endpoint for what the request asks that it has not tried.
func (p *Pick) takeAsked(ctx context.Context) error {
	return p.excluding(func(exclude []string) error {
		query := p.query
		if len(exclude) > 0 {
			query += "&" + url.Values{"exclude": exclude}.Encode()
		}
		return p.wait(ctx, query, p.before == nil)
	})
}

// wait takes an element of the batch for a query, as cluster.wait returns it.
func (p *Pick) wait(ctx context.Context, query string, others bool) error {
	b, err := p.cluster.wait(ctx, query, others)
	switch {
	case ctx.Err() != nil: // no endpoint is to blame
		return unavailable(p.cluster.name, "lbd did not answer in time", ctx.Err())
	case err != nil:
		return err
	}
	return p.takeFrom(b, now(), nil)
}

// excluding calls ask with what lbd is to exclude: what the request has tried, and what is set aside, unless that is all.
func (p *Pick) excluding(ask func(exclude []string) error) error {
	var tried []string
	for before := p.before; before != nil && !p.anew; before = before.before {
		tried = append(tried, before.choice.Address)
	}
	avoided := p.cluster.asides.avoided()
	slices.Sort(avoided)
	exclude := slices.Concat(tried, avoided)
	err := ask(exclude[:min(len(exclude), maxTried)])
	if len(avoided) > 0 && codeOf(err) == "all_excluded" {
		err = ask(tried)
	}
	return err
}

// takeFrom takes the next element of a batch, or another one that accept permits. All are permitted if accept is nil.
func (p *Pick) takeFrom(b *batch, at time.Duration, accept func(address string) bool) error {
	e := b.take(&p.cluster.asides, at, accept)
	if e.refusal != nil {
		return e.refusal
	}
	if accept != nil && !accept(e.address) {
		if e = b.takeAccepted(&p.cluster.asides, at, accept); e == nil {
			return ErrNotAccepted
		}
	}
	p.start(e, at)
	return nil
}

// start counts a request to an element of the batch.
func (p *Pick) start(e *element, at time.Duration) {
	p.choice, p.begin = e.choice, at
	p.count = e.counts.begin(e.count, e.address, at)
}
