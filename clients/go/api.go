package lbdclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxAnswer is the size of an answer of lbd, at most.
	maxAnswer = 16 << 20
	// callTimeout is for calls that do not wait.
	callTimeout = 2 * time.Second
	// waitGrace is the time for a call beyond its wait.
	waitGrace = time.Second
	// idleConnections to lbd, at most: a burst of picks in the modes pick and lease has one for each of its requests.
	idleConnections = 100
)

// api calls lbd. It is safe for concurrent use.
type api struct {
	base      string
	at        string          // address of lbd, and how it was found
	reached   func(err error) // called with the result of each call
	client    *http.Client
	tokenFile string
	token     atomic.Pointer[string]
}

func newAPI(c Config, reached func(error)) (*api, error) {
	transport := &http.Transport{ // without Proxy: calls to lbd never use one
		DisableCompression:  true,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: callTimeout,
	}
	a := &api{
		at:        fmt.Sprintf("%s (%s)", c.Address, c.found),
		reached:   reached,
		tokenFile: c.TokenFile,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	dialer := net.Dialer{Timeout: callTimeout}
	transport.DialContext = dialer.DialContext
	if path, ok := strings.CutPrefix(c.Address, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		a.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	} else {
		parsed, err := url.Parse(c.Address)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil ||
			strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" {
			return nil, fmt.Errorf("address of lbd: %q is not unix:PATH, http://HOST:PORT or https://HOST:PORT", redacted(c.Address))
		}
		a.base = parsed.Scheme + "://" + parsed.Host
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates of lbd: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates of lbd: %s has no PEM certificate", c.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	a.token.Store(&c.Token)
	if c.Token == "" {
		a.readToken("")
	}
	return a, nil
}

// readToken reads the token file, and reports whether it has another token than the one that lbd rejected.
func (a *api) readToken(rejected string) bool {
	if a.tokenFile == "" {
		return false
	}
	content, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return false // lbd rejects the calls, and the file is read again
	}
	token := strings.TrimSpace(string(content))
	a.token.Store(&token)
	return token != rejected
}

// redacted returns an address that is not valid without what may be a password.
func redacted(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "…" + address[i:]
	}
	return address
}

// call is a call to lbd. The fields without a comment are those of the HTTP request.
type call struct {
	method  string
	path    string
	query   url.Values
	asks    string // added to query
	body    any    // encoded as JSON, unless it is nil
	cluster string
	timeout time.Duration
	// key makes a repetition of the call by net/http safe: a value for Idempotency-Key, or "" if it is safe in any case.
	// It is for calls that are not GET.
	key *string
}

// do decodes the answer to a call into answer. It returns an *Error if lbd rejects the call; with any other error, lbd
// is unreachable, or the answer is not complete and valid. The text of an error has no query.
func (a *api) do(ctx context.Context, c call, answer any) error {
	err := a.call(ctx, c, answer)
	if err != nil && codeOf(err) == "" {
		err = fmt.Errorf("%s %s at %s: %w", c.method, c.path, a.at, err)
	}
	if ctx.Err() == nil {
		a.reached(err)
	}
	return err
}

func (a *api) call(ctx context.Context, c call, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var body []byte
	if c.body != nil {
		var err error
		if body, err = json.Marshal(c.body); err != nil {
			return err
		}
	}
	token := *a.token.Load()
	status, header, content, err := a.exchange(ctx, c, token, body)
	if err == nil && status == http.StatusUnauthorized && a.readToken(token) {
		status, header, content, err = a.exchange(ctx, c, *a.token.Load(), body)
	}
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			return failed.Err // without the URL
		}
		return err
	}
	if status == http.StatusOK || status == http.StatusCreated {
		err = json.Unmarshal(content, answer)
		if picks, ok := answer.(interface{ isComplete() bool }); ok && err == nil && !picks.isComplete() {
			err = errors.New("the answer has no picks")
		}
		return err
	}
	var p problem
	if json.Unmarshal(content, &p) != nil {
		p = problem{}
	}
	switch {
	case p.Code != "", status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return p.error(c.cluster, status, seconds(header.Get("Retry-After")))
	default:
		return fmt.Errorf("status %d without a code of lbd", status)
	}
}

// exchange returns the status, the header and the complete body of an answer.
func (a *api) exchange(ctx context.Context, c call, token string, body []byte) (int, http.Header, []byte, error) {
	target := a.base + c.path
	if len(c.query) > 0 {
		target += "?" + c.query.Encode() + c.asks
	}
	request, err := http.NewRequestWithContext(ctx, c.method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header["User-Agent"] = []string{"lbd-client-go"}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != nil {
		request.Header["Idempotency-Key"] = nil // net/http does not send it then
		if *c.key != "" {
			request.Header["Idempotency-Key"] = []string{*c.key}
		}
	}
	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, nil, err
	}
	if len(content) > maxAnswer {
		return 0, nil, nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return response.StatusCode, response.Header, content, nil
}

// seconds parses a Retry-After; 0 if it is not a number of seconds.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// milliseconds writes a duration as lbd reads it.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(0, d.Milliseconds()), 10) + "ms"
}
