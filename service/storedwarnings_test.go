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
)

// TestStoredWarnings: what an older lbd accepted and this one would reject is logged
// at startup, a limited number of times, and a push is not.
func TestStoredWarnings(t *testing.T) {
	dir := t.TempDir()
	stored := map[resource.Key][]byte{}
	for i := range 103 {
		name := fmt.Sprintf("c%03d", i)
		stored[resource.Key{Type: resource.TypeCluster, Name: name}] = encode(t, object{
			"name": name, "type": "EDS", "transport_socket": object{"name": "envoy.transport_sockets.quic"},
		})
	}
	seed(t, dir, stored, decode.Options{Stored: true})
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
