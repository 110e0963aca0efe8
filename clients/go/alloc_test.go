//go:build !race

package lbdclient_test

import (
	"net/http"
	"sync"
	"testing"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// responses has a response for each RoundTrip, so that the benchmark counts the allocations of the client only.
var responses = sync.Pool{New: func() any { return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody} }}

// answering is a RoundTripper that does nothing.
func answering(*http.Request) (*http.Response, error) {
	return responses.Get().(*http.Response), nil //nolint:errcheck,forcetypeassert // the pool has nothing else
}

// path returns a function that sends a request to a RoundTripper that does nothing.
func path(t testing.TB, mode lbdclient.Mode) func() {
	t.Helper()
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	client, err := lbdclient.New(lbdclient.Config{Address: d.Address, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	transport := &lbdclient.Transport{Client: client, Base: baseFunc(answering)}
	request, err := http.NewRequest(http.MethodGet, "http://orders.lbd/", nil)
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		response, err := transport.RoundTrip(request) //nolint:bodyclose // it has none
		if err != nil {
			t.Error(err)
		}
		responses.Put(response)
	}
	send() // waits for the first batch
	return send
}

// TestAllocOfRequest counts the copy of the request that RoundTrippers need, and nothing else.
func TestAllocOfRequest(t *testing.T) {
	if got := testing.AllocsPerRun(1000, path(t, lbdclient.ModeBatch)); got > 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}

func BenchmarkRequest(b *testing.B) {
	send := path(b, lbdclient.ModeBatch)
	b.ReportAllocs()
	for b.Loop() {
		send()
	}
}

func BenchmarkRequestParallel(b *testing.B) {
	send := path(b, lbdclient.ModeBatch)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			send()
		}
	})
}

func BenchmarkRequestWithLease(b *testing.B) {
	send := path(b, lbdclient.ModeLease)
	b.ReportAllocs()
	for b.Loop() {
		send()
	}
}
