package client

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options are what a client is made of.
type Options struct {
	// Bootstrap names the servers. It is required.
	Bootstrap *bootstrap.Config
	// Logger is told of what servers do that they should not, and that changes
	// nothing. By default nobody is.
	Logger *slog.Logger
	// Custom is resource.Options.Custom.
	Custom resource.CustomPolicies
	// OnUpdate takes what is new, and must not change it. It is called by one
	// goroutine at a time for each authority, in order; a server's next response
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
	decoding resource.Options
	logger   *slog.Logger
	inbox    *mailbox[func()]
	seed     maphash.Seed
	// authorities are by name, "" that of names without one. Their keys are
	// fixed; what they hold is the owner's.
	authorities map[string]*authority
	unknown     *authority // takes names of authorities that the bootstrap does not have

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	done    chan struct{}  // closed when the owner is gone
	running sync.WaitGroup // owner, runners, deliveries

	// owner only
	servers map[string]*server // those in use, by their key
	counts  map[UpdateCount]uint64
	known   map[uint64]*watch // those with a value, by the hash of its Raw
}

// New starts a client. It connects when something is wanted. Who calls closes it.
func New(o Options) (*Client, error) {
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
		authorities: map[string]*authority{},
		done:        make(chan struct{}),
		servers:     map[string]*server{},
		counts:      map[UpdateCount]uint64{},
		known:       map[uint64]*watch{},
		seed:        maphash.MakeSeed(),
		decoding: resource.Options{
			Origin: resource.FromServer,
			Format: resource.FormatProtobuf,
			Custom: o.Custom,
			Certificates: func(instance string) bool {
				_, ok := o.Bootstrap.CertificateProviders[instance]
				return ok
			},
		},
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.options.draw == nil {
		c.options.draw = rand.Float64
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.authorities[""] = newAuthority(c, "", o.Bootstrap.Servers)
	for name, a := range o.Bootstrap.Authorities {
		c.authorities[name] = newAuthority(c, name, a.Servers)
	}
	c.unknown = newAuthority(c, "", nil)
	c.running.Go(c.own)
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
		}
		for _, a := range c.authorities {
			a.deliver(nil)
		}
		c.unknown.deliver(nil)
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

// Want says which resources are wanted from now on, and which no longer are; what is
// in both is dropped and wanted anew. It never waits. A resource that is wanted
// already stays as it is; one that was dropped leaves the cache, and is asked for
// again when it is wanted again. Of a name of an authority that the bootstrap does
// not have, OnUpdate is told that it is unreachable; of one that no server can be
// asked for, that it does not exist.
func (c *Client) Want(add, drop []resource.Key) {
	add, drop = slices.Clone(add), slices.Clone(drop)
	c.post(func() {
		for _, k := range drop {
			a, _ := c.authorityOf(k)
			a.drop(k)
		}
		for _, k := range add {
			if k.Type.URL() == "" {
				continue // no server can send it
			}
			a, err := c.authorityOf(k)
			a.want(k, err)
		}
	})
}

// authorityOf returns who has a resource; c.unknown with an error where nobody can
// be asked for it.
func (c *Client) authorityOf(k resource.Key) (*authority, error) {
	if k.Name == "" || k.Name == "*" || !utf8.ValidString(k.Name) {
		return c.unknown, &NotFoundError{Key: k}
	}
	if _, err := c.options.Bootstrap.ServersFor(k.Name); err != nil {
		return c.unknown, &UnreachableError{Err: err}
	}
	return c.authorities[c.options.Bootstrap.Authority(k.Name)], nil
}

// Away reports whether no server of a resource's authority speaks now: from the
// start, and from the moment the last stream that was usable ended, until a server
// answered on a new one (or kept silent on it for 15 s although nothing was missing:
// it need not repeat what it sent before). It costs one atomic load.
func (c *Client) Away(name string) bool {
	a, _ := c.authorityOf(resource.Key{Name: name})
	return !a.heard.Load()
}

// Server returns the server that a resource is asked of, or was last; nil before
// anything of its authority was wanted. It costs one atomic load.
func (c *Client) Server(name string) *bootstrap.Server {
	a, _ := c.authorityOf(resource.Key{Name: name})
	return a.using.Load()
}

// Close ends all streams, closes the connections, and returns when nothing runs any
// more: it waits for an OnUpdate that is running.
func (c *Client) Close() {
	c.cancel()
	c.running.Wait()
}
