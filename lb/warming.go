package lb

import (
	"context"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Defer is Offer for a channel that may wait for its tree. A channel that has no config
// yet is warming from then on: it keeps the newest config, but builds no tree for it before
// the first pick, [Channel.Build], a description, or Offer. deferred is true if it does.
//
// A warming channel is IDLE, and has the memory of its config only.
func (c *Channel) Defer(config *resource.Config) (o Offered, deferred bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.hold(config)
	if c.begun {
		c.post()
		return Offered{u}, false
	}
	if p := c.current.Load(); !p.warming {
		c.current.Store(&published{
			picker: policy.QueuePicker, state: connectivity.Idle, generation: p.generation, warming: true,
		})
		c.replaced.Notify() // picks that wait for a config build the tree
	}
	return Offered{u}, true
}

// Warming reports whether the channel has a config and no tree yet.
func (c *Channel) Warming() bool { return c.current.Load().warming }

// Build builds the tree of a warming channel, and returns when picks see it. The error is
// the cause of ctx's end.
func (c *Channel) Build(ctx context.Context) error {
	c.begin()
	return c.awaitTree(ctx, nil)
}

// begin has the owner build the tree of a warming channel.
func (c *Channel) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.post()
}

// awaitTree returns when the channel is not warming, or is closed.
func (c *Channel) awaitTree(ctx context.Context, canceled <-chan struct{}) error {
	for c.Warming() {
		replaced := c.replaced.Wait()
		if !c.Warming() {
			break
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-canceled:
			return ErrCanceled
		}
	}
	return nil
}

// pickWarmed picks in a warming channel, once it has a tree. The time of the build is not
// limited by the wait of the pick: the tree answers the pick as it would without warming.
// It returns what pick returns, and the picker.
func (c *Channel) pickWarmed(call *policy.Call) (p *published, queue bool, err error) {
	c.begin()
	if err := c.awaitTree(call, call.Canceled); err != nil {
		return nil, false, err
	}
	p = c.current.Load()
	call.Again()
	queue, err = pick(p, call, false)
	return p, queue, err
}
