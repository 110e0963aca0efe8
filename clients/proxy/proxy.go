package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// maxKept is the size of a body that is kept to send it again, at most.
const maxKept = 64 << 10

// maxHost is the length of a host that names a cluster, at most.
const maxHost = 255

// timeoutHeader has the time that the caller gives a request, until it is answered.
const timeoutHeader = "Lbd-Timeout"

// proxy sends requests to endpoints.
type proxy struct {
	options
	log     *slog.Logger
	failing limiter // of the log
	via     string
	client  *lbdclient.Client
	plain   *lbdclient.Transport
	h2c     *lbdclient.Transport
	reverse *httputil.ReverseProxy
	metrics metrics
	routes  map[string]route // by the address of a --map

	reachable *regexp.Regexp // names of clusters

	certificate   *certificate // nil without TLS
	callers       []*opened
	administrator *opened // nil for none

	closing atomic.Bool
	stopped context.Context // done when tunnels and requests have to end
	stop    context.CancelFunc
}

func newProxy(o options, log *slog.Logger) (*proxy, error) {
	hosts, err := o.hostMap()
	if err != nil {
		return nil, err
	}
	p := &proxy{options: o, log: log, routes: map[string]route{}, via: fmt.Sprintf("lbd-proxy-%08x", rand.Uint32())}
	for _, text := range o.maps {
		address, r, err := mapped(text, hosts)
		if err != nil {
			return nil, err
		}
		if _, twice := p.routes[address]; twice {
			return nil, fmt.Errorf("--map: %s has two clusters", address)
		}
		p.routes[address] = r
		p.metrics.of(r.cluster, true)
	}
	if p.reachable, err = o.clusterPattern(); err != nil {
		return nil, err
	}
	o.client.Hosts, o.client.Logger = hosts, log
	o.client.OnState = func(is lbdclient.State) { p.metrics.away.Store(is != lbdclient.StateRecovered) }
	if p.client, err = lbdclient.New(o.client); err != nil {
		return nil, err
	}
	p.plain = &lbdclient.Transport{Client: p.client, Base: p.transport(false)}
	p.h2c = &lbdclient.Transport{Client: p.client, Base: p.transport(true)}
	p.stopped, p.stop = context.WithCancel(context.Background())
	p.reverse = &httputil.ReverseProxy{
		Transport:      p,
		Rewrite:        rewrite,
		ModifyResponse: answered,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			x := exchangeOf(r.Context())
			x.refuse(x.problemOf(err))
		},
		FlushInterval: -1,
		BufferPool:    buffers,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// transport returns what sends requests to endpoints.
func (p *proxy) transport(h2c bool) *http.Transport {
	t := &http.Transport{ // without Proxy: no request to an endpoint uses one
		DialContext:            p.client.DialContext,
		Protocols:              new(http.Protocols),
		HTTP2:                  p.pings(),
		DisableCompression:     true, // what the endpoint sends is what the caller gets
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    p.client.ConnectTimeout(),
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	t.Protocols.SetHTTP1(!h2c)
	t.Protocols.SetHTTP2(!h2c)
	t.Protocols.SetUnencryptedHTTP2(h2c)
	return t
}

// pings makes the end of connections visible whose peer has gone without a word.
func (p *proxy) pings() *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: p.pingInterval, PingTimeout: min(p.pingInterval, 15*time.Second)}
}

// RoundTrip sends a request to an endpoint.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if exchangeOf(r.Context()).route.scheme == "h2c" {
		return p.h2c.RoundTrip(r)
	}
	return p.plain.RoundTrip(r)
}

// handler serves the requests of one listener. The zero route is that of the forward proxy.
func (p *proxy) handler(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		x := &exchange{ResponseWriter: w, proxy: p, request: request, route: r, begun: time.Now()}
		x.control, x.stall = http.NewResponseController(w), p.stallTimeout
		x.stats = p.metrics.of("", false)
		p.metrics.inFlight.Add(1)
		defer x.end()
		if x.admit() {
			x.send()
		}
	})
}

// admit decides where a request goes. If it goes nowhere, its answer is a problem.
func (x *exchange) admit() bool {
	r, p := x.request, x.proxy
	if x.route.cluster == "" {
		x.route = route{scheme: "http", host: r.Host}
		if host := (&url.URL{Host: r.Host}).Hostname(); len(host) <= maxHost {
			x.route.cluster = p.client.ClusterOf(host)
		}
		if r.URL.Scheme == "https" {
			x.route.scheme = "https"
		}
	} else if r.Method == http.MethodConnect {
		return x.refuse(problem{Code: "method_not_allowed", Detail: "CONNECT is for the forward proxy, see --listen"})
	}
	name := x.route.cluster
	switch {
	case name == "":
		return x.refuse(problem{Code: "forbidden_host", Detail: fmt.Sprintf(
			"%.100q is no cluster: this proxy serves hosts that end in .lbd, and those of --host; set no_proxy for others", r.Host)})
	case r.URL.Scheme != "" && r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return x.refuse(problem{Code: "invalid_argument", Detail: "the scheme of the URL is neither http nor https"})
	case !p.reachable.MatchString(name):
		return x.refuse(problem{Code: "forbidden_cluster", Cluster: name, Detail: "no --cluster of this proxy permits the cluster"})
	case x.loops():
		return x.refuse(problem{Code: "loop", Cluster: name, Detail: "the request has passed this proxy before: an endpoint of the cluster leads back to it"})
	case p.metrics.inFlight.Load() > p.maxRequests:
		return x.refuse(problem{Code: "overloaded", Cluster: name, Detail: "too many requests are in flight, see --max-requests"})
	}
	x.timeout = p.timeout
	if text := r.Header.Get(timeoutHeader); text != "" {
		own, err := time.ParseDuration(text)
		if err != nil || own <= 0 {
			return x.refuse(problem{Code: "invalid_argument", Cluster: name, Detail: timeoutHeader + " is no duration, such as 1.5s"})
		}
		if x.fixed = x.timeout == 0 || own < x.timeout; x.fixed {
			x.timeout = own
		}
	}
	return true
}

func (x *exchange) loops() bool {
	for _, via := range x.request.Header["Via"] {
		if strings.Contains(via, x.proxy.via) {
			return true
		}
	}
	return false
}

// send sends the request to an endpoint, and the answer to the caller.
func (x *exchange) send() {
	r := x.request
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(x.proxy.stopped, cancel)()
	x.begin(cancel)
	ctx = httptrace.WithClientTrace(&exchangeContext{ctx, x}, &httptrace.ClientTrace{
		GetConn: func(address string) { x.tries(address) },
	})
	if r.Method == http.MethodConnect {
		x.connect(ctx)
		return
	}
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		x.leaves = true
		_ = x.control.EnableFullDuplex() // or net/http discards the body when the response begins
		r.Body = &requestBody{r.Body, x}
		if err := x.keepBody(r); err != nil {
			x.refuse(x.problemOf(err))
			return
		}
	}
	defer func() {
		if x.tunnel != nil {
			_ = x.tunnel.Close()
		}
		if broken := recover(); broken != nil {
			x.abort(broken)
		}
	}()
	x.proxy.reverse.ServeHTTP(x, r)
	removeForged(x.Header(), proxyStatus) // of trailers
	removeForged(x.Header(), http.TrailerPrefix+proxyStatus)
}

// keepBody reads a small body of a request that the client repeats, so that it can send it again. Others are streams.
func (x *exchange) keepBody(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
	default:
		if r.Header["Idempotency-Key"] == nil && r.Header["X-Idempotency-Key"] == nil {
			return nil
		}
	}
	if r.ContentLength <= 0 || r.ContentLength > maxKept {
		return nil
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	x.kept = int64(len(content))
	r.Header.Del("Expect") // the caller has sent it
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	r.Body, err = r.GetBody()
	return err
}

// rewrite makes the request to the endpoint. It has the Host that the caller sent.
func rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In.Context())
	out := r.Out
	out.URL.Scheme, out.URL.Host = x.route.scheme, x.route.host
	if out.URL.Scheme == "h2c" {
		out.URL.Scheme = "http"
	}
	out.URL.RawPath, out.URL.RawQuery = escaped(r.In.URL.RawPath), strings.ReplaceAll(r.In.URL.RawQuery, " ", "%20")
	if out.Method == http.MethodOptions && out.URL.Path == "" && out.URL.RequestURI() == "/" { // of a forward proxy
		out.URL.Path = "*"
	}
	out.Trailer = r.In.Trailer // it is complete after the body
	out.Header.Del(timeoutHeader)
	if slices.ContainsFunc(strings.Split(out.Header.Get("Upgrade"), ","), isH2C) { // requests in it would pass the proxy as they are
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	out.Header["Via"] = append(out.Header["Via"], fmt.Sprintf("%d.%d %s", r.In.ProtoMajor, r.In.ProtoMinor, x.proxy.via))
	names := []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"}
	if x.proxy.forwarded != "replace" {
		out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	if x.proxy.forwarded != "keep" {
		r.SetXForwarded()
	}
	for _, name := range names {
		if values := r.In.Header[name]; len(values) > 0 && x.proxy.forwarded != "replace" {
			out.Header[name] = values
		}
	}
}

func isH2C(protocol string) bool { return strings.EqualFold(strings.TrimSpace(protocol), "h2c") }

// escaped escapes the bytes of a path that must not be in one. For net/url, they are a reason to escape the decoded path.
func escaped(raw string) string {
	var path strings.Builder
	for _, c := range []byte(raw) {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("0123456789-._~!$&'()*+,;=:@/%[]", c) >= 0 {
			path.WriteByte(c)
		} else {
			fmt.Fprintf(&path, "%%%02X", c)
		}
	}
	return path.String()
}

// removeForged removes what only the proxy itself says.
func removeForged(header http.Header, key string) {
	header[key] = slices.DeleteFunc(header[key], func(status string) bool { return strings.Contains(strings.ToLower(status), "lbd-proxy") })
	if len(header[key]) == 0 { // HTTP/2 of net/http does not end a response with a trailer without values
		delete(header, key)
	}
}

// answered is called with the response of the endpoint.
func answered(response *http.Response) error {
	x := exchangeOf(response.Request.Context())
	x.answer()
	removeForged(response.Header, proxyStatus)
	if x.status = response.StatusCode; x.status != http.StatusSwitchingProtocols {
		return nil
	}
	conn, ok := response.Body.(tunneled)
	if !ok {
		return errors.New("the endpoint switched protocols without a connection")
	}
	t, err := x.newTunnel(conn)
	if err == nil {
		response.Body = t
	}
	return err
}
