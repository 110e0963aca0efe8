package lbdclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

func TestRetriesHaveABudget(t *testing.T) {
	d := lbdtest.Start(t)
	var requests atomic.Int64
	handler := func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	d.Push(t, "orders", "", upstream(t, handler), upstream(t, handler), upstream(t, handler), upstream(t, handler))
	for retries, most := range map[int]int64{0: 249, 5: 249, 1: 249, -1: 200} {
		requests.Store(0)
		_, client := connect(t, lbdclient.Config{Address: d.Address, Retries: retries})
		for i := range 200 {
			before := requests.Load()
			status, _, err := get(client, "http://orders.lbd/")
			if err != nil || status != http.StatusServiceUnavailable {
				t.Fatalf("status %d, %v", status, err)
			}
			want := map[int]int64{0: 3, 1: 2, 5: 4, -1: 1}[retries]
			if got := requests.Load() - before; i < 10 && got != want {
				t.Errorf("retries %d: request %d was sent %d times, want %d", retries, i, got, want)
			}
		}
		if got := requests.Load(); got > most {
			t.Errorf("retries %d: %d requests for 200, want %d at most", retries, got, most)
		}
	}
}

func TestNoRetryAfterTheDeadline(t *testing.T) {
	d := lbdtest.Start(t)
	var requests atomic.Int64
	release := make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	d.Push(t, "orders", "", upstream(t, handler), upstream(t, handler))
	defer close(release)
	client, sender := connect(t, lbdclient.Config{Address: d.Address})
	sender.Timeout = 100 * time.Millisecond
	var timeout net.Error
	if _, _, err := get(sender, "http://orders.lbd/"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("error %v", err)
	}
	if got := requests.Load(); got != 1 {
		t.Errorf("%d requests", got)
	}
	client.Close()
	if got := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="error"}`); got != 1 {
		t.Errorf("%v errors are reported", got)
	}
}

// TestDeadlineWhileConnecting: a request whose deadline passed before it was sent is none, for lbd.
func TestDeadlineWhileConnecting(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", lbdtest.Silent(t))
	stuck, err := net.Listen("tcp", "127.0.0.1:0") // it is connected, but there is no handshake
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	d.Push(t, "secure", "", stuck.Addr().String())
	var attempts atomic.Int64
	client, sender := connect(t, lbdclient.Config{Address: d.Address, OnAttempt: func(a lbdclient.Attempt) {
		attempts.Add(1)
		if a.Outcome != lbdclient.Cancelled {
			t.Errorf("the outcome is %s", a.Outcome)
		}
	}})
	ctx := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the connect may take 250 ms
		t.Cleanup(cancel)
		return ctx
	}
	for _, target := range []string{"http://orders.lbd/", "https://secure.lbd/"} {
		if err := try(ctx(), sender, target); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", target, err)
		}
	}
	if _, _, err := client.Dial(ctx(), "orders"); err == nil {
		t.Error("there is a connection")
	}
	client.Close()
	if attempts.Load() != 3 {
		t.Errorf("%d attempts", attempts.Load())
	}
	for _, labels := range []string{`"orders",outcome="error"`, `"orders",outcome="cancelled"`, `"secure",outcome="error"`, `"secure",outcome="cancelled"`} {
		if got := d.Metric(t, `lbd_reported_requests_total{cluster=`+labels+`}`); got != 0 {
			t.Errorf("%v requests are reported: cluster=%s", got, labels)
		}
	}
}

// baseFunc is a RoundTripper.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestBlame says which errors lbd hears about as errors of the endpoint.
func TestBlame(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.2:1")
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	tests := []struct {
		err           error
		sends, blamed int
	}{
		{dial(syscall.ECONNREFUSED), 2, 0}, // connect failures are no requests
		{io.EOF, 2, 2},
		{fmt.Errorf("wrapped: %w", syscall.ECONNRESET), 2, 2},
		{errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP response"), 2, 2},
		{dial(syscall.EMFILE), 1, 0},
		{dial(syscall.EADDRNOTAVAIL), 1, 0},
		{errors.New(`net/http: invalid header field name "\x00"`), 1, 0},
	}
	for _, test := range tests {
		client, err := lbdclient.New(lbdclient.Config{Address: d.Address})
		if err != nil {
			t.Fatal(err)
		}
		before := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="error"}`)
		sends := 0
		transport := &lbdclient.Transport{Client: client, Base: baseFunc(func(*http.Request) (*http.Response, error) {
			sends++
			return nil, test.err
		})}
		request, err := http.NewRequest(http.MethodGet, "http://orders.lbd/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(request); !errors.Is(err, test.err) { //nolint:bodyclose // there is none
			t.Errorf("%v: error %v", test.err, err)
		}
		client.Close()
		// What nothing was sent to is told apart from requests.
		blamed := int(d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="error"}`) - before)
		if sends != test.sends || blamed != test.blamed {
			t.Errorf("%v: sent %d times, %d errors reported", test.err, sends, blamed)
		}
	}
}

// counted is the body of a response or a request.
type counted struct {
	io.Reader

	closed *atomic.Int64
}

func (c counted) Close() error { c.closed.Add(1); return nil }

func TestResponsesOfFailedTriesAreClosed(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	client, _ := connect(t, lbdclient.Config{Address: d.Address})
	var sent, closed atomic.Int64
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client, Base: baseFunc(func(*http.Request) (*http.Response, error) {
		sent.Add(1)
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: counted{strings.NewReader("busy"), &closed}}, nil
	})}}
	status, body, err := get(sender, "http://orders.lbd/")
	if status != http.StatusServiceUnavailable || body != "busy" || err != nil || sent.Load() != 3 || closed.Load() != 3 {
		t.Errorf("status %d, body %q, %v: %d sent, %d closed", status, body, err, sent.Load(), closed.Load())
	}
}

// TestBodyOfAnEarlyAnswerIsClosed: a try was answered before its body was read, and the next one has another body.
func TestBodyOfAnEarlyAnswerIsClosed(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.1:2")
	client, _ := connect(t, lbdclient.Config{Address: d.Address})
	var sent, closed atomic.Int64
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client, Base: baseFunc(func(r *http.Request) (*http.Response, error) {
		defer r.Body.Close()
		if sent.Add(1) == 1 {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
		}
		body, err := io.ReadAll(r.Body)
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(body)))}, err
	})}}
	request, err := http.NewRequest(http.MethodPut, "http://orders.lbd/", counted{strings.NewReader("x"), &closed})
	if err != nil {
		t.Fatal(err)
	}
	request.GetBody = func() (io.ReadCloser, error) { return counted{strings.NewReader("x"), &closed}, nil }
	response, err := sender.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "x" || sent.Load() != 2 || closed.Load() != 2 {
		t.Errorf("body %q, %d sent, %d closed", body, sent.Load(), closed.Load())
	}
}

// failing is a body that cannot be read.
type failing struct{ closed atomic.Bool }

func (f *failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
func (f *failing) Close() error             { f.closed.Store(true); return nil }

func TestBodyThatFailsIsNotBlamed(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", upstream(t, nil))
	client, sender := connect(t, lbdclient.Config{Address: d.Address})
	post := func() (*failing, error) {
		body := new(failing)
		request, err := http.NewRequest(http.MethodPost, "http://orders.lbd/", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := sender.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return body, err
	}
	if _, err := post(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	client.Close()
	if got := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="cancelled"}`); got != 1 {
		t.Errorf("%v cancelled requests are reported", got)
	}
	if body, err := post(); !errors.Is(err, lbdclient.ErrUnavailable) || !body.closed.Load() {
		t.Errorf("without an endpoint: error %v, closed %v", err, body.closed.Load())
	}
}
