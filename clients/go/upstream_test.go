package lbdclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// upstream starts an HTTP server that answers with its address, unless handler is given.
func upstream(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Context().Value(http.LocalAddrContextKey))
		}
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener.Addr().String()
}

// refused returns an address where nothing listens.
func refused(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// connect returns a client, and an http.Client with its Transport.
func connect(t testing.TB, config lbdclient.Config) (*lbdclient.Client, *http.Client) {
	t.Helper()
	client, err := lbdclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, &http.Client{Transport: &lbdclient.Transport{Client: client}, Timeout: lbdtest.Deadline}
}

// get returns the status and the body of a response.
func get(client *http.Client, target string) (int, string, error) {
	response, err := client.Get(target)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// mustGet fails the test unless the status is 200.
func mustGet(t testing.TB, client *http.Client, target string) string {
	t.Helper()
	status, body, err := get(client, target)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: status %d, %v", target, status, err)
	}
	return body
}

func kindOf(t testing.TB, err error) *lbdclient.Error {
	t.Helper()
	var rejection *lbdclient.Error
	if !errors.As(err, &rejection) {
		t.Fatalf("error %v is not one of lbd", err)
	}
	return rejection
}

// contextWithoutTime returns a context whose deadline has passed.
func contextWithoutTime(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
}

// try returns the error of a request with a context.
func try(ctx context.Context, client *http.Client, target string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
