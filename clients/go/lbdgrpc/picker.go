package lbdgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// askAgain is the time after which an RPC that waits for ready asks lbd again.
const askAgain = time.Second

// picker is the state of the connections at one time.
type picker struct {
	balancer   *lbBalancer
	source     source
	conns      map[string]balancer.SubConn // nil for those that are not ready
	ready      bool                        // whether one is
	connecting bool                        // whether one may become ready
	err        error                       // of one that failed
}

// Pick takes an element of the batch. If a pick has to wait for lbd, the RPC is queued.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.source.client == nil {
		return balancer.PickResult{}, errNoSource
	}
	if r := p.balancer.rpcOf(info.Ctx); r != nil {
		return p.pickQueued(r)
	}
	if lbdclient.AskOf(info.Ctx) != nil {
		return p.queue(info.Ctx)
	}
	var unknown []string
	pick, err := p.source.client.TryPick(p.source.cluster, func(address string) bool {
		subConn, known := p.conns[address]
		if !known {
			unknown = append(unknown, address)
		}
		return subConn != nil
	})
	if unknown != nil { // lbd knows endpoints that the resolver has not seen yet
		go p.connect(unknown)
	}
	switch {
	case err == nil:
		return resultOf(p.conns[pick.Address()], pick), nil
	case errors.Is(err, lbdclient.ErrWait):
		return p.queue(info.Ctx)
	case errors.Is(err, lbdclient.ErrNotAccepted), isRefusal(err) && !p.ready && len(p.conns) > 0:
		// As with gRPC's xDS balancer, no RPC is dropped that has no connection: it would draw again with each update.
		if unknown != nil || p.connecting {
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
		return balancer.PickResult{}, p.disconnected()
	default:
		return balancer.PickResult{}, errorOf(err)
	}
}

func (p *picker) connect(addresses []string) {
	p.balancer.connect(addresses)
	p.balancer.update()
}

func (p *picker) disconnected() error {
	return fmt.Errorf("lbd: cluster %s: no endpoint is connected: %v", p.source.cluster, p.err) //nolint:errorlint // a status in it would end RPCs that wait for ready
}

// rpc is an RPC that is queued until its pick is there, and the endpoint is connected. Its fields are guarded by mu of
// the balancer.
type rpc struct {
	ctx   context.Context
	stop  func() bool     // of the function that is called when ctx is done
	pick  *lbdclient.Pick // nil until lbd has answered
	err   error           // why there is no pick
	again *time.Timer     // makes an RPC with err, which waits for ready, ask again
}

// leave is called when the RPC is sent, or given up.
func (r *rpc) leave() {
	r.stop()
	if r.again != nil {
		r.again.Stop()
	}
}

// giveUp ends the pick of an RPC that is not sent.
func (r *rpc) giveUp() {
	r.leave()
	if r.pick != nil {
		r.pick.End(lbdclient.Cancelled)
	}
}

// rpcOf returns a queued RPC; nil if it is not. Its context is that of one RPC, or of one try of it.
func (b *lbBalancer) rpcOf(ctx context.Context) *rpc {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queued[ctx]
}

// queue asks lbd for a pick.
func (p *picker) queue(ctx context.Context) (balancer.PickResult, error) {
	b := p.balancer
	r := &rpc{ctx: ctx}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	b.queued[ctx] = r
	r.stop = context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.queued[ctx] == r {
			delete(b.queued, ctx)
			r.giveUp()
		}
	})
	go b.ask(r, p.first(r))
	return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
}

func (p *picker) first(r *rpc) func() (*lbdclient.Pick, error) {
	return func() (*lbdclient.Pick, error) { return p.source.client.Pick(r.ctx, p.source.cluster) }
}

// ask calls get, which waits for lbd, and wakes the RPC.
func (b *lbBalancer) ask(r *rpc, get func() (*lbdclient.Pick, error)) {
	pick, err := get()
	if err != nil && r.ctx.Err() != nil {
		return // gRPC knows the status
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.pick, r.err = pick, err
	if b.queued[r.ctx] != r { // it was given up in the meantime
		r.giveUp()
		return
	}
	b.update()
}

// pickQueued returns the pick of a queued RPC, if it is there and its endpoint is connected.
func (p *picker) pickQueued(r *rpc) (balancer.PickResult, error) {
	b := p.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued[r.ctx] != r || r.pick == nil && r.err == nil {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	if r.err != nil {
		// The end of the RPC, unless it waits for ready: then it asks again, but not each time that it is woken.
		if r.again == nil {
			r.again = time.AfterFunc(askAgain, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.queued[r.ctx] == r {
					r.err, r.again = nil, nil
					go b.ask(r, p.first(r))
				}
			})
		}
		return balancer.PickResult{}, errorOf(r.err)
	}
	address := r.pick.Address()
	if subConn := p.conns[address]; subConn != nil {
		delete(b.queued, r.ctx)
		r.leave()
		return resultOf(subConn, r.pick), nil
	}
	c := b.conns[address]
	switch {
	case c == nil: // lbd knows an endpoint that the resolver has not seen yet
		go p.connect([]string{address})
	case c.state == connectivity.TransientFailure:
		// The next endpoint. Without one, the RPC fails as this connection did.
		failed, err := r.pick, c.err
		r.pick = nil
		go b.ask(r, func() (*lbdclient.Pick, error) {
			next, retryErr := failed.Move(r.ctx)
			if retryErr != nil {
				return nil, fmt.Errorf("lbd: cluster %s: connect to %s: %v", p.source.cluster, address, err) //nolint:errorlint // as in disconnected
			}
			return next, nil
		})
	}
	return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
}

// resultOf sends an RPC to a pick.
func resultOf(subConn balancer.SubConn, pick *lbdclient.Pick) balancer.PickResult {
	return balancer.PickResult{SubConn: subConn, Done: func(info balancer.DoneInfo) { pick.End(outcome(info)) }}
}

// outcome returns how an RPC ended, for lbd.
func outcome(info balancer.DoneInfo) lbdclient.Outcome {
	if info.Err == nil && !info.BytesSent && !info.BytesReceived {
		return lbdclient.Cancelled // the connection was lost before the RPC was sent: it gets another pick
	}
	switch status.Code(info.Err) {
	case codes.Canceled:
		return lbdclient.Cancelled
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return lbdclient.Failure
	default:
		return lbdclient.Success
	}
}

// errorOf returns the error of an RPC without an endpoint. With a status, it ends the RPC in any case; otherwise, the
// RPC fails with UNAVAILABLE, or waits for ready.
func errorOf(err error) error {
	if isRefusal(err) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

// isRefusal reports whether lbd wants less load.
func isRefusal(err error) bool {
	return errors.Is(err, lbdclient.ErrDropped) || errors.Is(err, lbdclient.ErrCircuitBroken)
}
