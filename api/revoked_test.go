package api_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Picks that wait, and long polls, end when the identity of their caller is removed; those of others go
// on. They also end when the identity expires.
func TestWaitsEndWithTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "identities.yaml")
		tokens, entries := map[string]string{}, map[string]string{}
		for _, name := range []string{"removed", "kept", "expires"} {
			token, hash := access.NewToken()
			tokens[name], entries[name] = token, fmt.Sprintf("- {name: %s, roles: [pick, read, push], sha256: %s}\n", name, hash)
		}
		expiry := time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
		entries["expires"] = strings.Replace(entries["expires"], "}", ", expires: "+expiry+"}", 1)
		write := func(names ...string) {
			var content strings.Builder
			content.WriteString("tokens:\n")
			for _, name := range names {
				content.WriteString(entries[name])
			}
			servicetest.Must(t, errors.Join(os.WriteFile(path+".next", []byte(content.String()), 0o600), os.Rename(path+".next", path)))
		}
		write("removed", "kept", "expires")
		known, err := access.Open(path, slog.New(slog.DiscardHandler), nil)
		servicetest.Must(t, err)
		defer known.Close()
		d := startFor(t, &listen.Callers{Identities: known.Current}, func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectNone: nil, resource.ConnectDefault: never{}}
			o.Sources.ConnectMode = resource.ConnectTCP
		})
		specs, err := listen.Parse([]string{"127.0.0.1:1"})
		servicetest.Must(t, err)
		l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(true, false)}
		do := func(name, method, target, body string, headers ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, target, strings.NewReader(body)).WithContext(listen.BaseContext(l))
			r.Host = "localhost"
			r.Header.Set("Authorization", "Bearer "+tokens[name])
			for _, h := range headers {
				r.Header.Set("Idempotency-Key", h)
			}
			return d.answer(r)
		}
		if w := do("kept", http.MethodPut, orders, assignment("", "a:1")); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
		generation := decode[observe.ClusterState](t, do("kept", http.MethodGet, "/v1/clusters/orders", "").Body.Bytes()).Generation
		poll := fmt.Sprintf("/v1/clusters/orders?index=%d&wait=5m", generation)
		type waiting struct {
			name, method, target string
			status               int
			after                time.Duration
		}
		const unauthenticated = http.StatusUnauthorized
		start := time.Now()
		for _, tt := range []waiting{
			{"removed", http.MethodGet, "/pick?cluster=orders&wait=60s", unauthenticated, 2 * time.Second},
			{"removed", http.MethodPost, "/pick?cluster=orders&wait=60s&n=3", unauthenticated, 2 * time.Second},
			{"removed", http.MethodGet, poll, unauthenticated, 2 * time.Second},
			{"kept", http.MethodGet, "/pick?cluster=orders&wait=60s", http.StatusGatewayTimeout, time.Minute},
			{"kept", http.MethodGet, poll, http.StatusOK, 5 * time.Minute},
			{"expires", http.MethodGet, poll, unauthenticated, 20 * time.Second},
			{"expires", http.MethodGet, "/pick?cluster=orders&wait=60s", unauthenticated, 20 * time.Second},
			{"expires", http.MethodPost, "/pick?cluster=orders&wait=60s&wait_for_ready=true&n=3", unauthenticated, 20 * time.Second},
			{"expires", http.MethodGet, "/pick?cluster=orders&wait=19s", http.StatusGatewayTimeout, 19 * time.Second},
		} {
			go func() {
				w := do(tt.name, tt.method, tt.target, "")
				if w.Code != tt.status || time.Since(start).Round(time.Second) != tt.after {
					t.Errorf("%+v: %d after %v: %s", tt, w.Code, time.Since(start), w.Body)
				}
				if tt.status == unauthenticated && !strings.Contains(w.Body.String(), tt.name+" is no longer valid") {
					t.Errorf("%+v: %s", tt, w.Body)
				}
			}()
		}
		for range 2 { // the second waits for the first
			go func() {
				if w := do("removed", http.MethodPost, "/pick?cluster=orders&wait=60s", "", "key"); w.Code != unauthenticated {
					t.Errorf("with a key: %d %s", w.Code, w.Body)
				}
			}()
		}
		synctest.Wait()
		write("kept", "expires")
		time.Sleep(6 * time.Minute)
		synctest.Wait()
	})
}
