package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/fleet/roster"
)

const (
	// MaxForwarded is the maximum number of requests that a daemon forwards to others at a time.
	MaxForwarded = 128
	// MaxForwardedTo is the maximum number of those to one of them.
	MaxForwardedTo = 16
	// ForwardTimeout is the time that a forwarded request may take.
	ForwardTimeout = 2 * time.Second
	// maxForwardedAnswer limits the answer to one.
	maxForwardedAnswer = 2 << 20
	// forwardedHeader is in a request that a daemon has forwarded, which is not forwarded again.
	forwardedHeader = "Lbd-Forwarded"
)

// Peers forwards requests about leases to the daemons of the fleet that have granted them. A nil *Peers
// forwards none.
type Peers struct {
	client *http.Client

	mu    sync.Mutex // guards the rest
	all   int
	count map[string]int // requests by address
}

// NewPeers returns Peers that verify daemons with TLS as a config says; nil is the default.
func NewPeers(c *tls.Config) *Peers {
	return &Peers{
		client: &http.Client{
			Transport: &http.Transport{
				TLSClientConfig: c, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: MaxForwardedTo, IdleConnTimeout: time.Minute,
				DialContext: (&net.Dialer{Timeout: ForwardTimeout}).DialContext,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		count: make(map[string]int),
	}
}

// Close closes idle connections.
func (p *Peers) Close() {
	if p != nil {
		p.client.CloseIdleConnections()
	}
}

// acquire takes a place for a request to an address. It reports false if there are too many.
func (p *Peers) acquire(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= MaxForwarded || p.count[address] >= MaxForwardedTo {
		return false
	}
	p.all++
	p.count[address]++
	return true
}

func (p *Peers) release(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.count[address]--; p.count[address] == 0 {
		delete(p.count, address)
	}
}

// peerAnswer is what a daemon has answered.
type peerAnswer struct {
	status           int
	kind, retryAfter string
	body             []byte
}

// do sends a request to the owner of a lease with the credentials of r.
func (p *Peers) do(r *http.Request, o *roster.Owner, uri string, body []byte) (a peerAnswer, err error) {
	if !p.acquire(o.Address) {
		return a, fault.Errorf(fault.RateLimited, "too many requests are being forwarded to %s (%s)", o.Name, o.Address).Retry(retryAfter)
	}
	defer p.release(o.Address)
	ctx, cancel := context.WithTimeout(r.Context(), ForwardTimeout)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.Method, o.Address+uri, bytes.NewReader(body)) //nolint:gosec // the address of a replica of the fleet's store
	if err != nil {
		return a, unavailable(o, "has no valid address")
	}
	if v := r.Header["Authorization"]; len(v) > 0 {
		out.Header["Authorization"] = v
	}
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
	}
	out.Header.Set(forwardedHeader, "1")
	res, err := p.client.Do(out) //nolint:gosec // the address of a replica of the fleet's store
	if err != nil {
		if r.Context().Err() != nil {
			return a, fault.Errorf(fault.CallerGone, "the caller has disconnected")
		}
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err
		}
		return a, unavailable(o, "cannot be reached: %v", err).Retry(retryAfter)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	a = peerAnswer{status: res.StatusCode, kind: res.Header.Get("Content-Type"), retryAfter: res.Header.Get("Retry-After")}
	a.body, err = io.ReadAll(io.LimitReader(res.Body, maxForwardedAnswer+1))
	switch {
	case err != nil:
		return a, unavailable(o, "did not answer completely: %v", err).Retry(retryAfter)
	case len(a.body) > maxForwardedAnswer || !isJSON(a.kind) || res.StatusCode < 200 || res.StatusCode >= 300 && res.StatusCode < 400:
		return a, unavailable(o, "answers as no lbd does (status %d, %q)", res.StatusCode, fault.Clip(a.kind))
	}
	return a, nil
}

func isJSON(kind string) bool {
	return strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, "application/problem+json")
}

func unavailable(o *roster.Owner, format string, args ...any) *fault.Error {
	address := cmp.Or(o.Address, "no address")
	return fault.Errorf(fault.ReplicaUnavailable, "the daemon that has granted the lease, %s (%s), %s; the lease ends by itself at its expires_at",
		o.Name, address, fmt.Sprintf(format, args...))
}
