package client

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options are what a client is made of.
type Options struct {
	// Bootstrap names the servers. It is required.
	Bootstrap *bootstrap.Config
	// Logger is told of what servers do that they should not, and that changes
	// nothing. By default nobody is.
	Logger *slog.Logger
	// Policies is decode.Options.Policies.
	Policies decode.Policies
	// OnUpdate takes what is new, and must not change it. It is called by one
	// goroutine at a time for each authority of the bootstrap, in order; a server's next response
	// is not read before it returned, so it may take its time. It may call the
	// client, but for Close. What was dropped a moment ago may still be told.
	OnUpdate func([]Update)
	// Events is told what happens, in order, by one goroutine. The client stands
	// still meanwhile: it must return at once, and not call Status or Close. Nil:
	// nobody is told.
	Events func(Event)
	// Overload is told when a server cannot be connected to for a shortage of lbd's
	// own, which is no fault of the server. It may be nil.
	Overload *overload.Monitor

	dial []grpc.DialOption // tests' connections
	draw func() float64    // tests' jitter, in [0, 1)
}

// Client follows the management servers of a bootstrap. Its methods may be called at
// the same time.
type Client struct {
	// fixed after New
	options  Options
	decoding decode.Options
	logger   *slog.Logger
	inbox    *mailbox[func()]
	seed     maphash.Seed
	// configs are the authorities of the bootstrap by name, "" for names without
	// one; noServers stands for those that the bootstrap does not have; allConfigs
	// has both. contacts are by the key of the server.
	configs    map[string]*authorityConfig
	noServers  *authorityConfig
	allConfigs []*authorityConfig
	contacts   map[string]*contact

	// index holds what authorities holds, for any goroutine.
	index sync.Map

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	done    chan struct{}  // closed when the owner is gone
	running sync.WaitGroup // owner, runners, deliveries

	// owner only
	authorities map[authorityKey]*authority // those with a watch
	servers     map[string]*server          // those in use, by key
	counts      map[UpdateCount]uint64
	known       map[uint64]*serverResource // those with a value, by the hash of its Raw
	moves       []*move                    // not yet published
	unapplied   map[unappliedKey]*unappliedField

	// start begins to connect to a server; after posts do to the owner later.
	// Tests of the owner alone replace them.
	start func(*server)
	after func(d time.Duration, do func())
}

// New starts a client. It connects when something is wanted. The caller closes it.
func New(o Options) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	c.running.Go(c.own)
	return c, nil
}

// newClient returns a client without its owner's goroutine.
func newClient(o Options) (*Client, error) {
	switch {
	case o.Bootstrap == nil:
		return nil, errors.New("an xDS client needs a bootstrap")
	case o.OnUpdate == nil:
		return nil, errors.New("an xDS client needs somebody to tell of updates")
	}
	c := &Client{
		options:     o,
		logger:      o.Logger,
		inbox:       newMailbox[func()](),
		configs:     map[string]*authorityConfig{},
		noServers:   newAuthorityConfig("", nil),
		contacts:    map[string]*contact{},
		authorities: map[authorityKey]*authority{},
		done:        make(chan struct{}),
		servers:     map[string]*server{},
		counts:      map[UpdateCount]uint64{},
		known:       map[uint64]*serverResource{},
		unapplied:   map[unappliedKey]*unappliedField{},
		seed:        maphash.MakeSeed(),
		decoding: decode.Options{
			Origin:       decode.FromServer,
			Format:       decode.FormatProtobuf,
			Policies:     o.Policies,
			Certificates: o.Bootstrap.Instances(),
		},
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.options.draw == nil {
		c.options.draw = rand.Float64
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.start = func(s *server) { c.running.Go(func() { s.run(s.ctx) }) }
	c.after = func(d time.Duration, do func()) { time.AfterFunc(d, func() { c.post(do) }) }
	c.configs[""] = newAuthorityConfig("", o.Bootstrap.Servers)
	for name, a := range o.Bootstrap.Authorities {
		c.configs[name] = newAuthorityConfig(name, a.Servers)
	}
	c.allConfigs = append(slices.Collect(maps.Values(c.configs)), c.noServers)
	for _, a := range c.configs {
		for _, s := range a.servers {
			if c.contacts[s.Key()] == nil {
				c.contacts[s.Key()] = &contact{}
			}
		}
	}
	return c, nil
}

// own is the owner.
func (c *Client) own() {
	defer close(c.done)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.inbox.wake:
		}
		for _, do := range c.inbox.take() {
			do()
			c.publishMoves()
		}
		c.deliver(nil)
		for _, s := range c.servers {
			s.flush()
		}
	}
}

// post hands the owner something to do. It never waits.
func (c *Client) post(do func()) { c.inbox.put(do) }

// tell is for the owner.
func (c *Client) tell(e Event) {
	if c.options.Events != nil {
		c.options.Events(e)
	}
}

func (c *Client) count(s *server, t resource.Type, r UpdateResult) {
	c.counts[UpdateCount{Server: s.config.URI, Type: t, Result: r}]++
}

// Want sets which resources a target wants from now on, and which it no longer
// wants; a resource in both is dropped, and then wanted as if for the first time. It
// never waits. The name of the target means nothing to the client: each target has
// its own watches, cache and server in use (gRFC A71). A resource that the target
// wants already stays as it is. OnUpdate is told that a name of an authority that
// the bootstrap does not have is unreachable, and that a name that no server can be
// asked for does not exist.
func (c *Client) Want(target string, add, drop []resource.Key) {
	add, drop = slices.Clone(add), slices.Clone(drop)
	c.post(func() { c.want(target, add, drop) })
}

// want is Want for the owner.
func (c *Client) want(target string, add, drop []resource.Key) {
	for _, k := range drop {
		config, _ := c.configOf(k)
		if a := c.authorities[authorityKey{target, config}]; a != nil {
			a.drop(k)
		}
	}
	for _, k := range add {
		if k.Type.URL() == "" {
			continue // no server can send it
		}
		config, err := c.configOf(k)
		c.authority(authorityKey{target, config}).want(k, err)
	}
	for _, k := range drop { // last: a stream that is still needed must not end
		config, _ := c.configOf(k)
		if a := c.authorities[authorityKey{target, config}]; a != nil {
			c.forget(a)
		}
	}
}

// authority returns an authority of a target, a new one where there is none.
func (c *Client) authority(key authorityKey) *authority {
	a := c.authorities[key]
	if a == nil {
		a = &authority{client: c, key: key, watches: map[resource.Key]*watch{}}
		c.authorities[key] = a
		c.index.Store(key, a)
	}
	return a
}

// forget forgets an authority of which a target wants nothing any more.
func (c *Client) forget(a *authority) {
	if len(a.watches) == 0 {
		a.release(0)
		delete(c.authorities, a.key)
		c.index.Delete(a.key)
	}
}

// configOf returns the authority of a resource; noServers with an error where no
// server can be asked for it.
func (c *Client) configOf(k resource.Key) (*authorityConfig, error) {
	if k.Name == "" || k.Name == "*" || !utf8.ValidString(k.Name) {
		return c.noServers, &NotFoundError{Key: k}
	}
	if _, err := c.options.Bootstrap.ServersFor(k.Name); err != nil {
		return c.noServers, &UnreachableError{Err: err}
	}
	return c.configs[c.options.Bootstrap.Authority(k.Name)], nil
}

// read returns what other goroutines may read of the authority of a resource for a
// target; nil where the target wants nothing of it.
func (c *Client) read(target, name string) *authority {
	config, _ := c.configOf(resource.Key{Name: name})
	a, _ := c.index.Load(authorityKey{target, config})
	found, _ := a.(*authority)
	return found
}

// Away reports whether no server that a target uses for a resource is connected:
// from the start, and from the moment the last stream that was usable ended, until a
// server answered on a new one (or kept silent on it for 15 s although nothing was
// missing: it need not repeat what it sent before).
func (c *Client) Away(target, name string) bool {
	a := c.read(target, name)
	return a == nil || !a.connected.Load()
}

// Server returns the server that a target uses for a resource; nil where the target
// wants nothing of its authority.
func (c *Client) Server(target, name string) *bootstrap.Server {
	if a := c.read(target, name); a != nil {
		return a.using.Load()
	}
	return nil
}

// Connected reports whether a server, which some target uses, has answered on its
// current stream.
func (c *Client) Connected(s bootstrap.Server) bool {
	known := c.contacts[s.Key()]
	return known != nil && known.connected.Load()
}

// Close ends all streams, closes the connections, and returns when nothing runs any
// more: it waits for an OnUpdate that is running.
func (c *Client) Close() {
	c.cancel()
	c.running.Wait()
}
