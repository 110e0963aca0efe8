package lbdclient

import (
	"context"
	"errors"
	"net"
)

// DialContext connects to an endpoint within ConnectTimeout, for the DialContext of a Transport.Base: while there may be
// another endpoint for the request, a connect that takes much longer than those before ends earlier.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if t, ok := ctx.Value(tryKey{}).(*try); ok {
		t.connecting.Store(true)
		defer t.connecting.Store(false)
		return t.pick.dial(ctx, network, address)
	}
	dialer := net.Dialer{Timeout: c.config.ConnectTimeout}
	return dialer.DialContext(ctx, network, address)
}

func (p *Pick) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: p.cluster.client.config.ConnectTimeout}
	connects := &p.cluster.connects
	if p.hurries {
		dialer.Timeout = min(dialer.Timeout, connects.limit())
	}
	began := now()
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		connects.add(now() - began)
	}
	return conn, err
}

// missedHurry remembers that a connect has failed because it had less time.
func (p *Pick) missedHurry(err error) {
	var network net.Error
	p.cut = p.cut || p.hurries && errors.As(err, &network) && network.Timeout()
}

// Dial connects to an endpoint of a cluster by TCP, for other protocols than HTTP, and to another one as long as a connect
// fails. Call [Pick.End] when the connection is closed. The error is an [*Error] if lbd has no endpoint, else that of the
// last connect.
func (c *Client) Dial(ctx context.Context, cluster string) (net.Conn, *Pick, error) {
	pick, err := c.Pick(ctx, cluster)
	for err == nil {
		conn, dialErr := pick.dial(ctx, "tcp", pick.Address())
		if dialErr == nil {
			return conn, pick, nil
		}
		if deadlinePassed(ctx) {
			pick.uncount()
		}
		if pick.outcome != "" || ctx.Err() != nil || !isConnection(dialErr) { // no endpoint is to blame
			pick.End(Cancelled)
			return nil, nil, dialErr
		}
		pick.missedHurry(dialErr)
		if pick, err = pick.Move(ctx); err != nil {
			return nil, nil, dialErr
		}
	}
	return nil, nil, err
}
