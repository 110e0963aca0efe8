package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options are the parameters of a client.
type Options struct {
	// Bootstrap has the servers. Required.
	Bootstrap *bootstrap.Config
	// Logger logs unexpected behavior of servers that changes nothing. Default: no log.
	Logger *slog.Logger
	// Policies is decode.Options.Policies.
	Policies decode.Policies
	// OnUpdate receives changes. It must not modify them. For each authority of the
	// bootstrap, one goroutine at a time calls it, in order. It may block: the next
	// response of a server is not read before it returns. It may call the client, except
	// Close. It may receive updates of resources that were dropped just before. Required.
	OnUpdate func([]Update)
	// Events receives events, in order, from one goroutine. The client waits for it: it
	// must not block, and must not call Status or Close. Default: no events.
	Events func(Event)
	// Overload receives the shortages of lbd itself that prevent a connection, which are
	// not failures of the server. It may be nil.
	Overload *overload.Monitor
	// Turns is the budget of decoding; nil for none.
	Turns *overload.Turns
	// Fleet is true for a daemon that shares its store with others.
	Fleet bool

	dial []grpc.DialOption // connections of tests
	draw func() float64    // jitter of tests, in [0, 1)
}

// Client follows the management servers of a bootstrap. Its methods are safe for
// concurrent use.
type Client struct {
	// fixed after New
	options  Options
	decoding decode.Options
	inbox    *queue[func()]
	// configs are the authorities of the bootstrap by name, "" for names without one;
	// noServers stands for all others; allConfigs has both.
	configs    map[string]*authorityConfig
	noServers  *authorityConfig
	allConfigs []*authorityConfig

	// index has the authorities, for all goroutines.
	index sync.Map

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // owner, transports, OnUpdate

	// owner only
	authorities map[authorityKey]*authority // those with a watcher
	pool        channelPool
	cache       resourceCache
	moves       serverMoves
}

// New starts a client. It connects when a resource is wanted. The caller closes it.
func New(o Options) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	c.running.Go(c.run)
	for _, config := range c.allConfigs {
		c.running.Go(func() { config.updates.run(c.ctx, o.OnUpdate) })
	}
	return c, nil
}

// newClient returns a client without goroutines.
func newClient(o Options) (*Client, error) {
	if o.Bootstrap == nil || o.OnUpdate == nil {
		return nil, errors.New("xDS client: Bootstrap and OnUpdate are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	if o.draw == nil {
		o.draw = rand.Float64
	}
	c := &Client{
		options:     o,
		inbox:       newQueue[func()](),
		configs:     map[string]*authorityConfig{"": newAuthorityConfig("", o.Bootstrap.Servers)},
		noServers:   newAuthorityConfig("", nil),
		authorities: map[authorityKey]*authority{},
		cache: resourceCache{
			seed: maphash.MakeSeed(), byHash: map[uint64]*resourceState{}, byKey: map[resource.Key]*resourceState{},
			unapplied: unappliedFields{logger: o.Logger, resources: map[unappliedKey]map[*resourceState]struct{}{}},
		},
		moves: serverMoves{events: o.Events},
		decoding: decode.Options{
			Origin:       decode.FromServer,
			Format:       decode.FormatProtobuf,
			Policies:     o.Policies,
			Certificates: o.Bootstrap.Instances(),
			Fleet:        o.Fleet,
		},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.pool = channelPool{
		channelEnv: channelEnv{
			node: o.Bootstrap.Node, logger: o.Logger, events: o.Events,
			cache: &c.cache, counts: map[UpdateCount]uint64{}, after: c.after,
		},
		ctx: c.ctx, connections: map[string]*connection{}, channels: map[string]*xdsChannel{}, start: c.startTransport,
	}
	for name, a := range o.Bootstrap.Authorities {
		c.configs[name] = newAuthorityConfig(name, a.Servers)
	}
	c.allConfigs = append(slices.Collect(maps.Values(c.configs)), c.noServers)
	for _, config := range c.configs {
		for _, s := range config.servers {
			c.pool.connections[s.Key()] = &connection{}
		}
	}
	return c, nil
}

// run is the owner.
func (c *Client) run() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.inbox.ready:
		}
		for _, do := range c.inbox.take() {
			do()
			c.moves.publish()
		}
		c.flushUpdates(nil)
		for _, ch := range c.pool.channels {
			ch.sendRequest()
		}
	}
}

// post has the owner call a function. It never blocks.
func (c *Client) post(do func()) { c.inbox.put(do) }

// postAndWait also returns a channel that is closed when OnUpdate has returned for the
// updates that the function caused.
func (c *Client) postAndWait(do func()) <-chan struct{} {
	r := &receipt{taken: make(chan struct{})}
	r.open.Store(1)
	c.post(func() {
		c.flushUpdates(nil) // the receipt does not cover earlier updates
		do()
		c.flushUpdates(r)
		r.release()
	})
	return r.taken
}

func (c *Client) after(d time.Duration, do func()) { time.AfterFunc(d, func() { c.post(do) }) }

// flushUpdates is owner only.
func (c *Client) flushUpdates(r *receipt) {
	for _, config := range c.allConfigs {
		config.updates.flush(r)
	}
}

func (c *Client) startTransport(ch *xdsChannel) {
	t := &transport{
		server: ch.server, dialOptions: c.options.dial, jitter: c.options.draw, overload: c.options.Overload,
		handler: ch, decode: c.decode, post: c.post, postAndWait: c.postAndWait,
	}
	c.running.Go(func() { t.run(ch.ctx) })
}

// memoryFactor is about how many times its size a resource takes when it is decoded and in a balancer tree.
const memoryFactor = 25

// decode decodes the resources of a response of a server that are not cached. It waits for its turn. If there is no memory
// for them, it returns an unread response. The error is that of ctx.
func (c *Client) decode(ctx context.Context, server string, m *discoveryv3.DiscoveryResponse) (*response, error) {
	hashes := make([]uint64, len(m.GetResources()))
	for i, a := range m.GetResources() {
		hashes[i] = maphash.Bytes(c.cache.seed, a.GetValue())
	}
	cached := fromOwner(ctx, c, func() cachedItems { return c.cache.lookUp(hashes) })
	size, kind := 0, typeOfURL(m.GetTypeUrl())
	for i, a := range m.GetResources() {
		if _, ok := cached.item(i, kind, a); !ok && kind != "" {
			size += len(a.GetValue())
		}
	}
	release, err := c.options.Turns.ReserveSource(fmt.Sprintf("%s of %s", kind, server), size, memoryFactor)
	if err != nil {
		return &response{kind: kind, version: m.GetVersionInfo(), nonce: m.GetNonce(), nackDetail: "no memory: " + err.Error(), unread: true}, ctx.Err()
	}
	turn, err := c.options.Turns.BeginSized(ctx, overload.SourceWork, server, size)
	if err != nil {
		release()
		return nil, err
	}
	defer turn.End()
	o := c.decoding
	o.Pause = turn.Pause
	o.Previous = func(key resource.Key) resource.Item {
		key.Name = canonical(key.Name)
		return fromOwner(ctx, c, func() resource.Item { return c.cache.previous(key) })
	}
	r := decodeResponse(m, o, cached)
	r.release = release
	if err := ctx.Err(); err != nil { // it may not be complete
		release()
		return nil, err
	}
	return r, nil
}

// fromOwner returns what read returns when the owner calls it, or the zero value if ctx is
// done before.
func fromOwner[T any](ctx context.Context, c *Client, read func() T) (value T) {
	values := make(chan T, 1)
	c.post(func() { values <- read() })
	select {
	case value = <-values:
	case <-ctx.Done():
	}
	return value
}

// Want adds and drops resources of a target. A resource in both lists is dropped, and
// then wanted as if for the first time. A resource that the target wants already stays as
// it is. Want never blocks. Each target has its own watchers, cache and server in use
// (gRFC A71). OnUpdate gets ErrorUnreachable for a name of an authority that is not in
// the bootstrap, and ErrorUnrequestable for a name that no server can be asked for.
func (c *Client) Want(target string, add, drop []resource.Key) {
	add, drop = slices.Clone(add), slices.Clone(drop)
	c.post(func() { c.want(target, add, drop) })
}

// want is Want for the owner.
func (c *Client) want(target string, add, drop []resource.Key) {
	for _, k := range drop {
		if a := c.indexed(target, k.Name); a != nil {
			a.unwatch(k)
		}
	}
	for _, k := range add {
		if k.Type.URL() == "" {
			continue // no server can send it
		}
		config, err := c.configOf(k)
		c.authority(authorityKey{target, config}).watch(k, err)
	}
	for _, k := range drop { // last, so that a stream that is still needed does not end
		if a := c.indexed(target, k.Name); a != nil {
			c.removeIfUnused(a)
		}
	}
}

// authority returns the authority with a key. It adds one if there is none.
func (c *Client) authority(key authorityKey) *authority {
	a := c.authorities[key]
	if a == nil {
		a = &authority{key: key, pool: &c.pool, moves: &c.moves, watchers: map[resource.Key]*watcher{}}
		c.authorities[key] = a
		c.index.Store(key, a)
	}
	return a
}

func (c *Client) removeIfUnused(a *authority) {
	if len(a.watchers) == 0 {
		a.releaseFrom(0)
		delete(c.authorities, a.key)
		c.index.Delete(a.key)
	}
}

// configOf returns the authority of a resource. If no server can be asked for it, it
// returns noServers and an error.
func (c *Client) configOf(k resource.Key) (*authorityConfig, *ResourceError) {
	if k.Name == "" || k.Name == "*" || !utf8.ValidString(k.Name) {
		return c.noServers, &ResourceError{Kind: ErrorUnrequestable, Key: k}
	}
	if _, err := c.options.Bootstrap.ServersFor(k.Name); err != nil {
		return c.noServers, &ResourceError{Kind: ErrorUnreachable, Key: k, Err: err}
	}
	return c.configs[c.options.Bootstrap.Authority(k.Name)], nil
}

// indexed returns the authority of a resource for a target, for all goroutines: they may
// read its atomic fields. It is nil if the target wants nothing of the authority.
func (c *Client) indexed(target, name string) *authority {
	config, _ := c.configOf(resource.Key{Name: name})
	a, _ := c.index.Load(authorityKey{target, config})
	found, _ := a.(*authority)
	return found
}

// Away reports whether no server that a target uses for a resource is connected. A server
// is connected from its first response on a stream until the stream ends, or from 15 s
// after the stream opened if it need not respond because it sent everything before.
func (c *Client) Away(target, name string) bool {
	a := c.indexed(target, name)
	return a == nil || !a.connected.Load()
}

// Server returns the server that a target uses for a resource; nil if the target wants
// nothing of its authority.
func (c *Client) Server(target, name string) *bootstrap.Server {
	if a := c.indexed(target, name); a != nil {
		return a.using.Load()
	}
	return nil
}

// Connected reports whether a server that a target uses has responded on its current
// stream.
func (c *Client) Connected(s bootstrap.Server) bool {
	conn := c.pool.connections[s.Key()]
	return conn != nil && conn.connected.Load()
}

// Close ends all streams and connections. It returns when all goroutines have ended, and
// so waits for a running OnUpdate.
func (c *Client) Close() {
	c.cancel()
	c.running.Wait()
}
