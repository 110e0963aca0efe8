package attack_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// soak is a daemon under a mixed load.
type soak struct {
	t       *testing.T
	d       *daemon
	client  *http.Client
	tokens  map[string]string // by name
	file    string            // the identity file
	servers []*upstream
	results map[string]*result
	leases  []string // taken and not yet ended; of the load "lease"
}

// soakClusters are the clusters with endpoints that change. The last has a small
// circuit breaker, and the one before it drops picks.
const soakClusters = 20

func clusterName(i int) string { return fmt.Sprintf("cluster-%d", i%soakClusters) }

const (
	dropping = "cluster-18"
	limited  = "cluster-19"
)

// newSoak starts upstreams and a daemon that connects to them.
func newSoak(t *testing.T) *soak {
	t.Helper()
	dir := t.TempDir()
	s := &soak{
		t: t, client: client(bystander), tokens: make(map[string]string), results: make(map[string]*result),
		file: filepath.Join(dir, "identities.yaml"),
	}
	for i := range 12 {
		u := &upstream{address: fmt.Sprintf("127.20.0.%d:18080", i+1)}
		noError(t, u.start(t.Context()))
		t.Cleanup(u.stop)
		s.servers = append(s.servers, u)
	}
	for _, name := range []string{"operator", "picker"} {
		s.tokens[name] = "lbd_" + base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + "0123456"))[:43]
	}
	s.writeTokens(0)
	s.d = start(t, options{
		listen: "127.0.0.1:0,anonymous=pick+read",
		args:   []string{"--tokens=" + s.file, "--connect=tcp", "--data=" + filepath.Join(dir, "data"), "--history-bytes=4194304"},
	})
	for i := range soakClusters {
		noError(t, s.push(t.Context(), clusterName(i), i))
	}
	config := fmt.Sprintf(`{"name":%q,"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}},"circuit_breakers":{"thresholds":[{"max_requests":5}]}}`, limited)
	if _, err := s.expect(t.Context(), "201", http.MethodPut, "/v1/clusters/"+limited+"/config", config, s.tokens["operator"]); err != nil {
		t.Fatal(err)
	}
	return s
}

// writeTokens replaces the identity file, which has one more caller of a new name
// in each version.
func (s *soak) writeTokens(version int) {
	var b strings.Builder
	fmt.Fprintf(&b, "tokens:\n- {name: extra-%d, sha256: %x, roles: [pick]}\n", version, sha256.Sum256([]byte(rand.Text())))
	for name, grant := range map[string]string{"operator": "roles: [pick, read, push, admin, metrics]", "picker": `roles: [pick], clusters: ["cluster-*"]`} {
		fmt.Fprintf(&b, "- {name: %s, sha256: %x, %s}\n", name, sha256.Sum256([]byte(s.tokens[name])), grant)
	}
	if err := errors.Join(os.WriteFile(s.file+".new", []byte(b.String()), 0o600), os.Rename(s.file+".new", s.file)); err != nil {
		s.t.Error(err)
	}
}

// upstream is a server that can be restarted: it accepts connections and closes them
// when the other side does.
type upstream struct {
	address string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
}

func (u *upstream) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.address)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.listener, u.open = l, make(map[net.Conn]bool)
	u.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.open[c] = true
			u.mu.Unlock()
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
				u.mu.Lock()
				delete(u.open, c)
				u.mu.Unlock()
			}()
		}
	}()
	return nil
}

func (u *upstream) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = u.listener.Close()
	for c := range u.open {
		_ = c.Close()
	}
}

// push replaces the endpoints of a cluster by eight of the upstreams, which differ
// with n. At most one upstream is down at a time, so there is always one to pick.
func (s *soak) push(ctx context.Context, name string, n int) error {
	var all []string
	for i := range 8 {
		host, _, _ := strings.Cut(s.servers[(n+i)%len(s.servers)].address, ":")
		all = append(all, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":18080}}}}`, host))
	}
	var policy string
	if name == dropping {
		policy = `,"policy":{"drop_overloads":[{"category":"throttle","drop_percentage":{"numerator":5}}]}`
	}
	body := fmt.Sprintf(`{"cluster_name":%q,"endpoints":[{"locality":{"zone":"a"},"load_balancing_weight":1,"lb_endpoints":[%s]}]%s}`, name, strings.Join(all, ","), policy)
	_, err := s.expect(ctx, "200,201", http.MethodPut, "/v1/clusters/"+url.PathEscape(name)+"/endpoints", body, s.tokens["operator"])
	return err
}

// token returns the token of a caller that may pick, or none, in turns.
func (s *soak) token(i int) string {
	switch i % 3 {
	case 0:
		return s.tokens["picker"]
	case 1:
		return s.tokens["operator"]
	default:
		return ""
	}
}

// explained reports whether the answer to a pick has a reason that the load causes:
// drops and the circuit breaker, in the clusters that have them.
func explained(cluster string, status int, text string) bool {
	return status < 300 ||
		cluster == dropping && status == http.StatusServiceUnavailable && strings.Contains(text, `"dropped"`) ||
		cluster == limited && status == http.StatusServiceUnavailable && strings.Contains(text, `"circuit_broken"`)
}

// pick makes a pick and returns the body of its answer.
func (s *soak) pick(ctx context.Context, method, cluster, query string, i int, header ...string) (string, error) {
	path := "/pick?cluster=" + cluster + query
	status, text, err := s.call(ctx, method, path, "", s.token(i), header...)
	if err == nil && !explained(cluster, status, text) {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, text)
	}
	return text, err
}

// loads are the kinds of load.
func (s *soak) loads() []load {
	operator := s.tokens["operator"]
	return []load{
		{"pick", 20 * time.Millisecond, func(ctx context.Context, i int) error {
			_, err := s.pick(ctx, http.MethodGet, clusterName(i), "", i)
			return err
		}},
		{"pick with explain", time.Second, func(ctx context.Context, i int) error {
			_, err := s.pick(ctx, http.MethodGet, clusterName(i), "&explain=true", i)
			return err
		}},
		{"lease", 40 * time.Millisecond, s.lease},
		{"bulk pick", 200 * time.Millisecond, func(ctx context.Context, i int) error {
			_, err := s.pick(ctx, http.MethodGet, clusterName(i%soakClusters%18), "&n=100", i)
			return err
		}},
		{"bulk lease", time.Second, func(ctx context.Context, i int) error {
			_, err := s.pick(ctx, http.MethodPost, clusterName(i%soakClusters%18), "&n=50&ttl=2s&owner=bulk", i)
			return err
		}},
		{"idempotent pick", 100 * time.Millisecond, s.idempotent},
		{"push", 250 * time.Millisecond, func(ctx context.Context, i int) error { return s.push(ctx, clusterName(i), i) }},
		{"new cluster", time.Second, s.newCluster},
		{"identity file", 15 * time.Second, func(_ context.Context, i int) error { s.writeTokens(i + 1); return nil }},
		{"restart of an upstream", 5 * time.Second, s.restart},
		{"snapshot", 2 * time.Second, s.snapshot},
		{"lists", 2 * time.Second, s.lists},
		{"streams", 3 * time.Second, s.streams},
		{"unread stream", 7 * time.Second, s.unread},
		{"long poll", time.Second, s.longPoll},
		{"invalid request", 200 * time.Millisecond, s.invalid},
		{"unknown name", 200 * time.Millisecond, func(ctx context.Context, i int) error {
			_, err := s.expect(ctx, "404", http.MethodGet, fmt.Sprintf("/pick?cluster=unknown-%d", i), "", operator)
			return err
		}},
		{"no permission", 500 * time.Millisecond, s.forbidden},
		{"connection that breaks", time.Second, s.breaks},
	}
}

// lease takes a lease; it renews some of them, ends most, and lets others expire.
func (s *soak) lease(ctx context.Context, i int) error {
	text, err := s.pick(ctx, http.MethodPost, clusterName(i), fmt.Sprintf("&ttl=5s&owner=host-%d", i%500), i)
	if err != nil {
		return err
	}
	var answer struct {
		Lease struct{ ID string }
	}
	_ = json.Unmarshal([]byte(text), &answer)
	if answer.Lease.ID == "" || i%4 == 0 { // rejected, or left to expire
		return nil
	}
	if s.leases = append(s.leases, answer.Lease.ID); len(s.leases) < 20 {
		return nil
	}
	first := s.leases[0]
	s.leases = slices.Delete(s.leases, 0, 1)
	if i%7 == 0 {
		_, err = s.expect(ctx, "200", http.MethodPost, "/v1/leases/"+first+"/renew?ttl=2s", "", s.tokens["operator"])
	} else {
		_, err = s.expect(ctx, "200", http.MethodPost, "/v1/leases/"+first+"/done", `{"outcome":"success"}`, s.tokens["operator"])
	}
	return err
}

// idempotent sends a pick twice with the same key: the answers have the same lease.
func (s *soak) idempotent(ctx context.Context, i int) error {
	cluster, key := clusterName(i%soakClusters%18), fmt.Sprint("key-", i)
	first, err := s.pick(ctx, http.MethodPost, cluster, "&ttl=1s", i, "Idempotency-Key", key)
	if err != nil {
		return err
	}
	second, err := s.pick(ctx, http.MethodPost, cluster, "&ttl=1s", i, "Idempotency-Key", key)
	if err == nil && first != second {
		err = fmt.Errorf("the same key had the answers %s and %s", first, second)
	}
	return err
}

// newCluster pushes a cluster of a new name, picks from it, and deletes it.
func (s *soak) newCluster(ctx context.Context, i int) error {
	name := fmt.Sprintf("cluster-new-%d", i)
	if err := s.push(ctx, name, i); err != nil {
		return err
	}
	if _, err := s.pick(ctx, http.MethodPost, name, "&ttl=1s", i); err != nil {
		return err
	}
	_, err := s.expect(ctx, "200,204", http.MethodDelete, "/v1/clusters/"+name+"/endpoints", "", s.tokens["operator"])
	return err
}

// restart stops one upstream for a second.
func (s *soak) restart(ctx context.Context, i int) error {
	u := s.servers[i%len(s.servers)]
	u.stop()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return u.start(s.t.Context())
}

// snapshot reads the snapshot in each format, and pushes it in JSON as a dry run.
func (s *soak) snapshot(ctx context.Context, i int) error {
	operator := s.tokens["operator"]
	format := []string{"application/json", "application/yaml", "application/x-protobuf"}[i%3]
	text, err := s.expect(ctx, "200", http.MethodGet, "/v1/snapshot", "", operator, "Accept", format)
	if err == nil && i%3 == 0 {
		_, err = s.expect(ctx, "200", http.MethodPost, "/v1/snapshot?dry_run=true", text, operator)
	}
	return err
}

// lists reads each list.
func (s *soak) lists(ctx context.Context, i int) error {
	paths := []string{"/v1/clusters", "/v1/events?limit=100", "/v1/leases?limit=100", "/v1/clusters/cluster-1/history", "/v1/targets", "/metrics/endpoints", "/readyz?verbose", "/"}
	_, err := s.get(ctx, paths[i%len(paths)], s.tokens["operator"])
	return err
}

// streams watches for 20 s.
func (s *soak) streams(ctx context.Context, i int) error {
	paths := []string{"/v1/clusters/watch", "/v1/events/watch?last=10", "/v1/daemon/watch", "/v1/clusters/" + clusterName(i) + "/watch"}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, _ = s.get(ctx, paths[i%len(paths)], s.tokens["operator"])
	}()
	return nil
}

// unread opens a stream that it does not read for 20 s.
func (s *soak) unread(ctx context.Context, i int) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.d.address)
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = c.Close() }()
		_, _ = fmt.Fprintf(c, "GET /v1/clusters/%s/watch HTTP/1.1\r\nHost: localhost\r\n\r\n", clusterName(i))
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
		}
	}()
	return nil
}

// longPoll waits for a change of a cluster.
func (s *soak) longPoll(ctx context.Context, i int) error {
	text, err := s.get(ctx, "/v1/clusters/"+clusterName(i)+"?endpoints=false", "")
	if err != nil {
		return err
	}
	var state struct{ Generation int64 }
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return err
	}
	go func() {
		_, _ = s.get(ctx, fmt.Sprintf("/v1/clusters/%s?index=%d&wait=10s", clusterName(i), state.Generation), "")
	}()
	return nil
}

// invalid makes requests that lbd must reject.
func (s *soak) invalid(ctx context.Context, i int) error {
	bad := []struct{ status, method, path, body string }{
		{"422", http.MethodPut, "/v1/clusters/cluster-1/endpoints", `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"x","port_value":0}}}}]}]}`},
		{"400,422", http.MethodPut, "/v1/clusters/cluster-1/endpoints", `{"endpoints":[`},
		{"422", http.MethodPut, "/v1/clusters/cluster-1/config", `{"no_such_field":1}`},
		{"409", http.MethodPut, "/v1/clusters/cluster-1/endpoints", `{"cluster_name":"cluster-1"}`},
		{"422", http.MethodPut, "/v1/snapshot", `{}`},
		{"404", http.MethodPost, "/v1/leases/0000000000/done", ``},
		{"400", http.MethodGet, "/pick?cluster=cluster-1&n=0", ``},
		{"400", http.MethodGet, "/pick?no=such", ``},
		{"405", http.MethodPatch, "/v1/snapshot", ``},
		{"404", http.MethodGet, "/v1/nothing", ``},
	}
	b := bad[i%len(bad)]
	_, err := s.expect(ctx, b.status, b.method, b.path, b.body, s.tokens["operator"])
	return err
}

// forbidden makes requests without permission.
func (s *soak) forbidden(ctx context.Context, i int) error {
	var err error
	switch i % 3 {
	case 0:
		_, err = s.expect(ctx, "401", http.MethodGet, "/pick?cluster=cluster-1", "", "lbd_"+strings.Repeat("x", 43))
	case 1:
		_, err = s.expect(ctx, "403", http.MethodPut, "/v1/snapshot", `{}`, s.tokens["picker"])
	default:
		_, err = s.expect(ctx, "403", http.MethodGet, "/pick?cluster=other", "", s.tokens["picker"])
	}
	return err
}

// breaks closes a connection in the middle of a request or of its answer.
func (s *soak) breaks(ctx context.Context, i int) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.d.address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	switch i % 3 {
	case 0:
		_, err = fmt.Fprint(c, "GET /pick?cluster=clus")
	case 1:
		_, err = fmt.Fprintf(c, "PUT /v1/snapshot HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n{", s.tokens["operator"])
	default:
		_, err = fmt.Fprint(c, "GET /v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, _ = bufio.NewReader(c).ReadByte()
	}
	return err
}
