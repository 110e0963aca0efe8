package client

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// with returns a cluster with the changes.
func with(name string, changes ...func(*clusterv3.Cluster)) *anypb.Any {
	c := clusterProto(name)
	for _, change := range changes {
		change(c)
	}
	return pack(c)
}

func altStatName(c *clusterv3.Cluster) { c.AltStatName = "x" }

func connectTimeout(c *clusterv3.Cluster) { c.ConnectTimeout = durationpb.New(time.Second) }

// unneededRing sets a field that only another lb_policy uses.
func unneededRing(c *clusterv3.Cluster) {
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{}}
}

// Status lists the fields that are not applied of the resources in use. Each is logged once.
// None causes a NACK.
func TestUnappliedFields(t *testing.T) {
	var log bytes.Buffer
	runTest(t, "one", func(t *testing.T, w *harness) {
		check := func(lines int, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, u := range w.client.Status().Unapplied {
				got = append(got, fmt.Sprintf("%s %s=%d %s", u.Type, strings.TrimPrefix(u.Field, "envoy.config.cluster.v3."), u.Resources, u.Path))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				t.Errorf("unapplied\n%s\nwant\n%s", g, w)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != lines {
				t.Errorf("%d lines are logged, want %d:\n%s", n, lines, log.String())
			}
		}
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="" nonce=""`)
		check(0)
		s.send("1", "n1", with("a", altStatName), with("b", altStatName, connectTimeout), with("unwanted", unneededRing))
		s.expect(`Cluster [a b] version="1" nonce="n1"`)
		check(2, "Cluster Cluster.alt_stat_name=2 alt_stat_name", "Cluster Cluster.connect_timeout=1 connect_timeout")
		for _, words := range []string{`resource=Cluster/b path=connect_timeout`, `reason="is not applied: each address has 20 s"`, `server=passthrough:///one`} {
			if !strings.Contains(log.String(), words) {
				t.Errorf("the log lacks %s: %s", words, log.String())
			}
		}

		// The fields of cached resources count.
		s.send("2", "n2", with("a", altStatName), with("b", altStatName, connectTimeout))
		s.expect(`Cluster [a b] version="2" nonce="n2"`)
		check(2, "Cluster Cluster.alt_stat_name=2 alt_stat_name", "Cluster Cluster.connect_timeout=1 connect_timeout")

		// The example is a resource with the field.
		if u := w.client.Status().Unapplied[0]; u.Example != "a" {
			t.Errorf("the example is %+v", u)
		}
		s.send("3", "n3", with("a"), with("b", altStatName, connectTimeout))
		s.expect(`Cluster [a b] version="3" nonce="n3"`)
		check(2, "Cluster Cluster.alt_stat_name=1 alt_stat_name", "Cluster Cluster.connect_timeout=1 connect_timeout")

		// Whether a field applies depends on the other fields.
		s.send("4", "n4", with("a"), with("b", altStatName, unneededRing))
		s.expect(`Cluster [a b] version="4" nonce="n4"`)
		check(3, "Cluster Cluster.alt_stat_name=1 alt_stat_name", "Cluster Cluster.ring_hash_lb_config=1 ring_hash_lb_config")
		if u := w.client.Status().Unapplied[0]; u.Example != "b" || u.Server != "passthrough:///one" {
			t.Errorf("the example is %+v", u)
		}

		// A rejected version changes nothing: the last good version is in use.
		s.send("5", "n5", with("a"), badCluster("b"))
		s.expect(`Cluster [a b] version="4" nonce="n5" NACK`)
		check(3, "Cluster Cluster.alt_stat_name=1 alt_stat_name", "Cluster Cluster.ring_hash_lb_config=1 ring_hash_lb_config")

		w.want(cds, "-b")
		check(3)
		w.want(cds, "b")
		time.Sleep(time.Second)
		s.send("6", "n6", with("a"), with("b", altStatName))
		check(3, "Cluster Cluster.alt_stat_name=1 alt_stat_name")
	}, func(_ *harness, o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
}
