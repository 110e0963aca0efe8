package service_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// TestStoredWarnings: what an older lbd accepted and this one would reject is logged
// at startup, a limited number of times, and a push is not.
func TestStoredWarnings(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const clusters = 103
	if _, err := st.Update(t.Context(), func(tx *store.Tx) error {
		for i := range clusters {
			name := fmt.Sprintf("c%03d", i)
			d, err := decode.Cluster(encode(t, object{
				"name": name, "type": "EDS", "transport_socket": object{"name": "envoy.transport_sockets.quic"},
			}), decode.Options{Stored: true})
			if err != nil {
				return err
			}
			if err := tx.Put(resource.Key{Type: resource.TypeCluster, Name: name}, d.Raw); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, _ := start(t, dir, func(o *service.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 101 || !strings.Contains(lines[0], "resource=Cluster/c000") || !strings.Contains(lines[0], "transport_socket is not applied") ||
		!strings.Contains(lines[100], "more=3") {
		t.Errorf("logged %d lines, the first %s, the last %s", len(lines), lines[0], lines[len(lines)-1])
	}
	log.Reset()
	push(t, s, sources.Config, "orders", encode(t, object{"type": "EDS", "health_checks": []object{{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1, "tcp_health_check": object{}}}}))
	if log.Len() > 0 {
		t.Errorf("a push logged %s", log.String())
	}
}
