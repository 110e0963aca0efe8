package ctl

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// maxResponseBytes limits what is read of a response.
	maxResponseBytes = 1 << 30
	maxPEMBytes      = 8 << 20
	// maxConcurrency is the maximum number of requests at a time.
	maxConcurrency = 256
)

// client makes requests to one daemon.
type client struct {
	to      connection
	http    *http.Client
	timeout time.Duration
}

func newClient(to connection, timeout time.Duration) (*client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: maxConcurrency,
	}
	switch to.url.Scheme {
	case "unix":
		path := to.url.Path
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
		}
	case "https":
		config, err := to.tls()
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
	}
	return &client{to: to, timeout: timeout, http: &http.Client{
		Transport: transport,
		// A redirect would send the token to another host. lbd sends none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// tls returns the TLS configuration of a connection.
func (c connection) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := readLimited(c.CA, maxPEMBytes, 0)
		if err != nil {
			return nil, usage("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--ca: %s has no certificates in PEM", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, usage("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// request is an API request.
type request struct {
	method string
	path   string // percent-encoded
	query  url.Values
	header http.Header
	body   []byte
	// wait is the time that the daemon may wait before it responds.
	wait time.Duration
}

// response is a successful response.
type response struct {
	header http.Header
	body   []byte
}

// segment returns a name as a segment of a path.
func segment(name string) string {
	switch name {
	case "watch": // /v1/clusters/watch is the stream of all clusters
		return "%77atch"
	case ".", "..":
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// open makes a request. The response must be closed.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	base := strings.TrimRight(c.to.url.String(), "/")
	if c.to.url.Scheme == "unix" {
		base = "http://lbd"
	}
	address := base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	h, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, usage("%s %s: %w", r.method, r.path, err)
	}
	maps.Copy(h.Header, r.header)
	h.Header.Set("User-Agent", "lbd-ctl")
	if h.Header.Get("Accept") == "" {
		h.Header.Set("Accept", "application/json")
	}
	if c.to.token != "" {
		h.Header.Set("Authorization", "Bearer "+c.to.token)
	}
	answer, err := c.http.Do(h)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return answer, nil
}

// do makes a request and reads its response. A problem response is a *refusal.
func (c *client) do(ctx context.Context, r request) (response, error) {
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout+r.wait, errNoResponse)
	defer cancel()
	answer, err := c.open(limited, r)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return response{}, c.refused(r, answer)
	}
	body, err := readAll(answer.Body, "the response", maxResponseBytes)
	if err != nil {
		return response{}, c.unreachable(limited, err)
	}
	if !json.Valid(body) {
		return response{}, c.unexpected(answer)
	}
	return response{answer.Header, body}, nil
}

// read makes a request and decodes its response.
func (c *client) read(ctx context.Context, r request, v any) (response, error) {
	answer, err := c.do(ctx, r)
	if err != nil {
		return answer, err
	}
	return answer, decode(answer.body, v)
}

// get decodes the response to a GET.
func (c *client) get(ctx context.Context, path string, query url.Values, v any) (response, error) {
	return c.read(ctx, request{method: http.MethodGet, path: path, query: query}, v)
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return &failure{exitFailed, fmt.Errorf("read the response of the daemon: %w", err)}
	}
	return nil
}

// list reads all parts of a list, up to a limit of items (0: all). raw is one list of the same form.
func list[T any](ctx context.Context, c *client, path, field string, query url.Values, limit int) (raw []byte, all []T, err error) {
	items := []json.RawMessage{}
	for more := true; more; {
		var part struct {
			Next string `json:"next"`
		}
		var fields map[string]json.RawMessage
		answer, err := c.get(ctx, path, query, &part)
		if err == nil {
			err = decode(answer.body, &fields)
		}
		var some []json.RawMessage
		if err == nil {
			err = decode(fields[field], &some)
		}
		if err != nil {
			return nil, nil, err
		}
		items = append(items, some...)
		query.Set("after", part.Next)
		more = part.Next != "" && (limit == 0 || len(items) < limit)
	}
	if limit > 0 {
		items = items[:min(len(items), limit)]
	}
	return join[T](field, items)
}

// join returns a list of items of the daemon, as JSON and decoded.
func join[T any](field string, items []json.RawMessage) (raw []byte, all []T, err error) {
	if raw, err = json.Marshal(map[string][]json.RawMessage{field: items}); err != nil {
		return nil, nil, err
	}
	var list map[string][]T
	err = decode(raw, &list)
	return raw, list[field], err
}

// errNoResponse is the cause of a timeout.
var errNoResponse = errors.New("no response in time")

// unreachable describes why there is no response.
func (c *client) unreachable(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoResponse) {
		const format = "no response from the daemon at %s within %v (--timeout); the process is stopped or overloaded, or a firewall drops packets: see its state and its log on that host"
		return &failure{exitUnreachable, fmt.Errorf(format, c.name(), c.timeout)}
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var advice string
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case unverified:
		advice = "set --ca to the authorities that sign its certificate, and use a host name that the certificate has"
	case strings.HasPrefix(err.Error(), "proxyconnect "):
		advice = "the proxy of HTTP_PROXY or HTTPS_PROXY cannot be used: correct it, or add the daemon's host to NO_PROXY"
	case plain || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		advice = "the daemon serves no TLS at this address: use an http:// URL"
	case errors.Is(err, fs.ErrPermission):
		advice = "the user of this process may not use the socket: see its mode and group"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		advice = "is the daemon running? --url, LBD_CTL_URL or lbd ctl context sets another address"
	default:
		advice = "check the address, and whether it needs TLS (https://)"
	}
	const format = "cannot reach the daemon at %s: %s; %s"
	return &failure{exitUnreachable, fmt.Errorf(format, c.name(), escape(err.Error()), advice)}
}

// name returns the URL of the daemon, with its context.
func (c *client) name() string {
	name := escape(c.to.url.String())
	if c.to.context != "" {
		name += " (context " + c.to.context + ")"
	}
	return name
}

// unexpected is the error of a response that is not from an lbd.
func (c *client) unexpected(answer *http.Response) error {
	const format = "unexpected response %s from %s: this is not an lbd, or a proxy is in between"
	return &failure{exitFailed, fmt.Errorf(format, escape(answer.Status), c.name())}
}

// refused returns the error of a problem response.
func (c *client) refused(r request, answer *http.Response) error {
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" {
		if answer.StatusCode == http.StatusBadRequest && c.to.url.Scheme == "http" {
			const format = "unexpected response %s from %s: if the daemon serves TLS at this address, use an https:// URL"
			return &failure{exitFailed, fmt.Errorf(format, escape(answer.Status), c.name())}
		}
		return c.unexpected(answer)
	}
	body, err := readAll(answer.Body, "the response", maxResponseBytes)
	if err != nil {
		return c.unexpected(answer)
	}
	refusal := &refusal{request: r, daemon: c.name(), hasToken: c.to.token != "", raw: body}
	if json.Unmarshal(body, &refusal.problem) != nil || refusal.Code == "" {
		return c.unexpected(answer)
	}
	return refusal
}

// readAll reads up to a limit; more is an error.
func readAll(r io.Reader, what string, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", what, limit)
	}
	return body, err
}
