package eventloop_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
)

// requests are answered alike by a loop and by net/http.
// Leases last longer than the test, also on a slow machine: explanations count them.
var requests = []string{
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/pick?cluster=orders&n=3 HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"GET /pick?cluster=orders&m=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick? HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?target=a&path=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?target=absent HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=absent HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&explain HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&n=101 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&min_index=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&min_index=1&wait=5s HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&min_index=2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&min_index=2&wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&min_index=x HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /pick?cluster=orders&min_index=9223372036854775807&wait=0s HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/clusters/watch?min_index=2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/clusters/orders/watch?min_index=2&wait=0s HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/daemon/watch?wait=2ms HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders&exclude=10.0.0.7:8080 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
	"POST /pick?cluster=orders&ttl=10m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
	"POST /v1/pick?cluster=orders&ttl=1h HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /pick?cluster=orders&ttl=10m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
	"POST /pick?cluster=orders&ttl=10m HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
	"POST /pick?cluster=orders&ttl=10m HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n",
	"POST /pick?cluster=orders&ttl=10m HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /v1/leases/ABC/done?x HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 21\r\n\r\n{\"outcome\":\"success\"}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nnull",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\nContent-Length : 2\r\n\r\n{}",
	"POST /v1/leases/ABC/done HTTP/1.1\r\nHost: localhost\r\n Content-Length: 2\r\n\r\n{}",
	"POST /v1/leases/A%42C/done HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /v1/leases/done HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\nHost: localhost\n\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\rHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nA: \x00\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: \r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: a b\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nA b: c\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("x", 80<<10) + "\r\n\r\n",
	"GET /pick?cluster=orders&hash=" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders HTTP/1.0\r\n\r\n",
	"GET http://localhost/pick?cluster=orders HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"HEAD /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"PUT /pick HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"\r\n\r\nGET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /pick?cluster=orders",
	"GET",
	"GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"",
}

// servers are compared with net/http.
var servers = []struct {
	network string
	loops   int
}{{"tcp", 1}, {"unix", 1}, {"tcp", 2}, {"unix", 3}, {"tcp", 3}, {"unix", 4}, {"tcp", 4}}

type pair struct{ loops, plain *kit }

func newPair(tb testing.TB, network string, loops int, h *api.Handler) pair {
	tb.Helper()
	return pair{newKit(tb, h, options{network: network, loops: loops}), newKit(tb, h, options{network: network, plain: true})}
}

// alike checks that the servers send the same bytes, apart from what differs in any two responses.
func (p pair) alike(tb testing.TB, parts ...[]byte) {
	tb.Helper()
	got, want := still(p.loops.exchange(tb, parts...)), still(p.plain.exchange(tb, parts...))
	if got != want {
		tb.Errorf("%.300q\ngot  %.1000q\nwant %.1000q", parts, got, want)
	}
}

func TestResponsesAreThoseOfHTTP(t *testing.T) {
	for _, server := range servers {
		p := newPair(t, server.network, server.loops, newAPI(t, anonymous()))
		for _, r := range requests {
			p.alike(t, []byte(r))
		}
		pick := "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n"
		for _, rest := range []string{"G", "GET", "GET ", "000", "0000", "\r\n", "\r\n\r\n"} { // after another one
			p.alike(t, []byte(pick+rest))
			p.alike(t, []byte(pick), []byte(rest))
		}
		post := "POST /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\n\r\n"
		for _, blank := range []string{"\r\n", "\n", "\r\n\r\n", "\r\n\r\n\r\n"} { // after a POST
			for _, next := range []string{"", pick, post + blank + pick, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
				p.alike(t, []byte(post+blank+next))
				p.alike(t, []byte(post), []byte(blank), []byte(next))
				p.alike(t, []byte(post), []byte(blank[:1]), []byte(blank[1:]+next))
			}
		}
		for _, r := range requests { // between others
			p.alike(t, []byte(pick+r+pick+pick))
		}
		for _, r := range requests[:40] { // in two parts
			for _, at := range []int{1, 5, len(r) / 2, len(r) - 2, len(r) - 1} {
				p.alike(t, []byte(r[:at]), []byte(r[at:]+pick))
			}
		}
	}
}

// One byte at a time, and many requests at once.
func TestPipelines(t *testing.T) {
	p := newPair(t, "unix", 1, newAPI(t, anonymous()))
	var all strings.Builder
	for i := range 300 {
		all.WriteString(requests[i%2])
		fmt.Fprintf(&all, "GET /pick?cluster=orders HTTP/1.1\r\nHost: localhost\r\nX-Number: %d\r\n\r\n", i)
	}
	all.WriteString("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + requests[0])
	p.alike(t, []byte(all.String()))
	var parts [][]byte
	for _, b := range []byte(requests[0] + requests[22] + requests[25]) {
		parts = append(parts, []byte{b})
	}
	p.alike(t, parts...)
}

func FuzzResponses(f *testing.F) {
	for _, r := range requests {
		f.Add([]byte(r), 0)
		f.Add([]byte(requests[0]+r), len(r)/2)
	}
	p := newPair(f, "unix", 4, newAPI(f, anonymous()))
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		at = min(max(at, 0), len(b))
		p.alike(t, b[:at], b[at:])
	})
}
