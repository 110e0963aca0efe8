package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestAddressesAreShown: callers see addresses, and details of lbd, only if the operator says so; the log has them.
func TestAddressesAreShown(t *testing.T) {
	address, hangs := refused(t), upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	gone := push(t, address)
	pushAs(t, gone+"-hangs", hangs)
	for _, shows := range []bool{false, true} {
		p := start(t, fmt.Sprint("--show-addresses=", shows))
		for _, c := range []struct{ cluster, timeout, detail, full string }{
			{gone, "1m", "no valid answer of an endpoint (1 tried)", "endpoint " + address + " (1 tried): dial tcp"},
			{gone + "-hangs", "50ms", "no answer within 50ms", "no answer within 50ms: endpoint " + hangs + " (1 tried): "},
			{"nope", "1m", "lbd answered unknown_cluster", "lbd: cluster nope: "},
		} {
			var answer string
			until(t, c.full, func() bool { // a slow machine may not try in time
				answer = curl(t, "-x", p.forward, "-H", "Lbd-Timeout: "+c.timeout, "http://"+c.cluster+".lbd/")
				return p.log.has(`detail="` + c.full)
			})
			if shows != strings.Contains(answer, `"detail":"`+c.full) || shows == strings.Contains(answer, `"detail":"`+c.detail+`"`) {
				t.Errorf("%v: %s", shows, answer)
			}
		}
	}
}

// TestForgedStatus: an endpoint cannot answer as the proxy does, in headers, early hints and trailers.
func TestForgedStatus(t *testing.T) {
	cluster := push(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		forged := []string{"lbd-proxy; error=http_request_denied", `cdn, "LBD-proxy"; error=x`}
		if r.URL.Query().Has("cdn") {
			forged = append(forged, "cdn")
		}
		w.Header()[proxyStatus] = slices.Clone(forged)
		w.WriteHeader(http.StatusEarlyHints)
		prefix := http.TrailerPrefix
		if r.URL.Path == "/announced" {
			w.Header().Set("Trailer", "X-Sum, "+proxyStatus)
			prefix = ""
		}
		_, _ = io.WriteString(w, "body")
		_ = http.NewResponseController(w).Flush()
		w.Header()[prefix+"X-Sum"] = []string{"1"}
		w.Header()[prefix+proxyStatus] = forged
	}))
	p := start(t, "--map=127.0.0.1:0="+cluster)
	gone := start(t, "--map=127.0.0.1:0="+pushAs(t, cluster+"-gone", refused(t)))
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		for _, path := range []string{"/announced", "/announced?cdn", "/late", "/late?cdn"} {
			answer := strings.ToLower(curl(t, "-i", version, "http://"+p.mapped+path))
			n := strings.Count(answer, "proxy-status: cdn\r\n")
			if strings.Contains(answer, "lbd-proxy") || !strings.Contains(answer, "x-sum: 1") || strings.Contains(path, "?") == (n < 3) {
				t.Errorf("%s %s", version, answer)
			}
		}
		if own := curl(t, "-i", version, "http://"+gone.mapped); !strings.Contains(strings.ToLower(own), "\nproxy-status: lbd-proxy; error=connection_terminated\r\n") {
			t.Errorf("%s: its own: %s", version, own)
		}
	}
}
