package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// clientOf returns a client of a server, with a token.
func clientOf(t *testing.T, handler http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	noError(t, err)
	c, err := newClient(connection{url: u, token: "secret"}, time.Minute)
	noError(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// TestRedirect: a redirect is not followed, so that no other host gets the token.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirected request: %v", r.Header)
	}))
	t.Cleanup(other.Close)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect} {
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer secret" {
				t.Errorf("the token is %q", got)
			}
			http.Redirect(w, r, other.URL, status)
		})
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			_, err := c.do(t.Context(), request{method: method, path: "/v1/clusters"})
			if f, ok := errors.AsType[*failure](err); !ok || f.code != exitFailed || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %d: %v", method, status, err)
			}
		}
		f := follower{client: c, path: "/v1/events/watch"}
		if err := f.run(t.Context()); err == nil {
			t.Error("a redirected stream")
		}
	}
}

// TestList: all parts are read, up to the limit.
func TestList(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit, requests int
		want            string
	}{{0, 3, "[1 2 3 4 5]"}, {1, 1, "[1]"}, {2, 1, "[1 2]"}, {3, 2, "[1 2 3]"}, {5, 3, "[1 2 3 4 5]"}, {9, 3, "[1 2 3 4 5]"}} {
		requests := 0
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			requests++
			parts := map[string]string{
				"": `{"items": [1, 2], "next": "a"}`, "a": `{"items": [3, 4], "next": "b"}`, "b": `{"items": [5], "next": ""}`,
			}
			fmt.Fprint(w, parts[r.URL.Query().Get("after")])
		})
		raw, items, err := list[json.RawMessage](t.Context(), c, "/v1/items", "items", parameters("limit", "2"), test.limit)
		var list struct{ Items []int }
		noError(t, errors.Join(err, json.Unmarshal(raw, &list)))
		if fmt.Sprint(list.Items) != test.want || len(items) != len(list.Items) || requests != test.requests {
			t.Errorf("limit %d: %v in %d requests, want %s in %d", test.limit, list.Items, requests, test.want, test.requests)
		}
	}
}

// TestModes: a file with a token must not be readable by every user, and the configuration, which says
// where it is sent, not writable.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "lbd", "config.yaml")
	if err := errors.Join(os.Mkdir(filepath.Dir(config), 0o700), os.WriteFile(token, []byte("secret\n"), 0o600),
		os.WriteFile(config, []byte("contexts: {}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token, config os.FileMode
		want          string
	}{
		{0o400, 0o600, ""},
		{0o640, 0o644, ""},
		{0o644, 0o600, token + " (mode 0644): run chmod o-rwx on it"},
		{0o602, 0o600, token + " (mode 0602)"},
		{0o600, 0o602, config + " (mode 0602)"},
	} {
		noError(t, errors.Join(os.Chmod(token, test.token), os.Chmod(config, test.config)))
		_, err := (Access{entry: entry{TokenFile: token}}).connection()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("token %o, configuration %o: %v, want %q", test.token, test.config, err, test.want)
		}
	}
}

// TestBench: picks are counted by result until the limit, and an error that is not of a pick ends the bench.
func TestBench(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, status int, code string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status": %d, "code": %q}`, status, code)
	}
	for _, test := range []struct {
		n       int
		handler http.HandlerFunc
		picks   int
		results string
		code    int
	}{
		{0, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"address": "a:1"}`) }, 50, "map[ok:50]", 0},
		{3, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"picks": [{}, {}]}`) }, 100, "map[ok:50]", 0},
		{0, func(w http.ResponseWriter, _ *http.Request) { answer(w, 503, "dropped") }, 0, "map[dropped:50]", 0},
		{0, func(w http.ResponseWriter, _ *http.Request) { answer(w, 429, "rate_limited") }, 0, "map[]", exitRefused},
	} {
		c := clientOf(t, test.handler)
		b := benchCommand{Duration: time.Hour, Requests: 50, Concurrency: 4}
		q := url.Values{}
		if test.n > 0 {
			q.Set("n", fmt.Sprint(test.n))
		}
		m, err := b.measure(t.Context(), c, request{method: http.MethodGet, path: "/pick", query: q})
		if test.code != 0 {
			if r, ok := errors.AsType[*refusal](err); !ok || r.ExitCode() != test.code {
				t.Errorf("%v, want exit code %d", err, test.code)
			}
			continue
		}
		if err != nil || m.picks != test.picks || fmt.Sprint(m.results) != test.results {
			t.Errorf("%d picks, %v, %v; want %d, %s", m.picks, m.results, err, test.picks, test.results)
		}
		if !slices.IsSorted(m.latencies) || len(m.latencies) != 50 {
			t.Errorf("latencies: %v", m.latencies)
		}
	}
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var m measurement
	for i := range 1000 {
		m.latencies = append(m.latencies, time.Duration(i+1))
	}
	for p, want := range map[float64]time.Duration{0.5: 500, 0.9: 900, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := m.percentile(p); got != want {
			t.Errorf("percentile %v: %d, want %d", p, got, want)
		}
	}
	m.latencies = m.latencies[:1]
	if m.percentile(0.5) != 1 || m.percentile(1) != 1 {
		t.Error("percentiles of one request")
	}
}
