package eventloop_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// BenchmarkServe serves picks without a socket.
func BenchmarkServe(b *testing.B) {
	const token = "lbd_0123456789012345678901234567890123456789012"
	identities, err := access.Parse(fmt.Appendf(nil, "tokens:\n- {name: web, sha256: %x, roles: [pick], clusters: [\"orders*\"]}\n", sha256.Sum256([]byte(token))))
	servicetest.Must(b, err)
	for _, bm := range []struct{ name, request string }{
		{"pick", pick},
		{"token", "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n\r\n"},
		{"n=100", "GET /pick?cluster=orders&n=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			specs, err := listen.Parse([]string{"127.0.0.1:1"})
			servicetest.Must(b, err)
			l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(false, false)}
			serve := eventloop.NewBenchmark(listen.BaseContext(l), newAPI(b, &listen.Callers{Identities: func() *access.Identities { return identities }}).Route)
			request, now := []byte(bm.request), time.Now()
			b.ReportAllocs()
			for b.Loop() {
				if out := serve(request, now); !bytes.HasPrefix(out, []byte("HTTP/1.1 200")) {
					b.Fatalf("%s", out)
				}
			}
		})
	}
}

// BenchmarkLease serves a pick with a lease, and its end.
func BenchmarkLease(b *testing.B) {
	specs, err := listen.Parse([]string{"127.0.0.1:1"})
	servicetest.Must(b, err)
	l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(false, false)}
	serve := eventloop.NewBenchmark(listen.BaseContext(l), newAPI(b, &listen.Callers{}).Route)
	grant, now := []byte("POST /pick?cluster=orders&ttl=30s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), time.Now()
	var end []byte
	b.ReportAllocs()
	for b.Loop() {
		out := serve(grant, now)
		_, location, found := bytes.Cut(out, []byte("Location: "))
		if !found {
			b.Fatalf("%s", out)
		}
		lease, _, _ := bytes.Cut(location, []byte("\r\n"))
		end = append(append(append(end[:0], "POST "...), lease...), "/done HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"outcome\":\"success\"}"...)
		if out := serve(end, now); !bytes.HasPrefix(out, []byte("HTTP/1.1 200")) {
			b.Fatalf("%s", out)
		}
	}
}
