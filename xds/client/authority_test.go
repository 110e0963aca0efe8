package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

func TestRemovalByAbsence(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b", "never")
		w.want(eds, "a", "b")
		w.want(resource.TypeListener, "l")
		w.want(resource.TypeRoutes, "r", "r2")
		s := w.servers["one"].accept()
		for range 4 {
			s.hear()
		}
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		s.say("1", "n2", assignment("a", 1), assignment("b", 1))
		w.expectTold("a=1, b=1")
		s.say("1", "n3", listener("l", "r"))
		w.expectTold("l=1")
		s.say("1", "n4", routes("r", "a"), routes("r2", "a"))
		w.expectTold("r2=1, r=1")

		// A response of all that there is tells what is no more; what never was
		// has its time.
		s.say("2", "n5", cluster("a"))
		w.expectTold("ambient b: not found")
		if got := w.state(cds, "b"); got.State != DoesNotExistButCached || got.Version != "1" {
			t.Errorf("it is %+v", got)
		}
		if got := w.state(cds, "never"); got.State != Requested {
			t.Errorf("it is %+v", got)
		}
		s.sayOf(resource.TypeListener.URL(), "2", "n6")
		w.expectTold("ambient l: not found")
		// It is told once.
		s.say("3", "n7", cluster("a"))
		s.sayOf(resource.TypeListener.URL(), "3", "n8")
		// Assignments and routes come as they change.
		s.say("2", "n9", assignment("b", 2))
		w.expectTold("b=2")
		s.sayOf(resource.TypeRoutes.URL(), "2", "n10")
		w.expectNothingTold()

		s.say("4", "n11", cluster("a"), cluster("b"))
		w.expectTold("b=4") // a is as it was
		// A bad one is there.
		s.say("5", "n12", badCluster("b"))
		w.expectTold("ambient a: not found, ambient b: rejected")
		s.say("6", "n13", cluster("a"))
		w.expectTold("a=6, ambient b: not found")
	})
}

func TestUnchangedIsNotTold(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", cluster("a"), cluster("b"))
		w.expectTold("a=1, b=1")
		before := w.state(cds, "a").Updated
		s.say("2", "n2", cluster("b", "other"), cluster("a"))
		w.expectTold("b=2")
		s.say("2", "n3", cluster("a"), cluster("b", "other"))
		w.expectNothingTold()
		got := w.state(cds, "a")
		if got.Version != "2" || !got.Updated.Equal(before) || got.State != Acked {
			t.Errorf("it is %+v", got)
		}
		counts := w.client.Status().Updates
		valid, unchanged := counts[UpdateCount{"passthrough:///one", cds, UpdateValid}], counts[UpdateCount{"passthrough:///one", cds, UpdateUnchanged}]
		if valid != 3 || unchanged != 3 {
			t.Errorf("counted %d valid, %d unchanged", valid, unchanged)
		}

		// What was refused and is good again is told, although it is what it was.
		s.say("3", "n4", badCluster("a"), cluster("b", "other"))
		w.expectTold("ambient a: rejected")
		s.say("3", "n5", badCluster("a"), cluster("b", "other"))
		w.expectNothingTold() // not twice
		s.say("4", "n6", cluster("a"), cluster("b", "other"))
		w.expectTold("a=4")
	})
}

func TestStatesOfRefusedResources(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", badCluster("a"))
		w.expectTold("a: rejected")
		got := w.state(cds, "a")
		var rejected *RejectedError
		if got.State != Nacked || got.Version != "" || got.Rejection.Version != "1" || !errors.As(got.Err, &rejected) {
			t.Errorf("it is %+v", got)
		}
		if e := event[Rejected](w); e.Keys[0].Name != "a" || e.Version != "1" || !strings.Contains(e.Err.Error(), "lb_policy") {
			t.Errorf("%+v", e)
		}
		s.say("2", "n2", cluster("a"))
		w.expectTold("a=2")
		if got := w.state(cds, "a"); got.State != Acked || got.Rejection != nil || got.Err != nil {
			t.Errorf("it is %+v", got)
		}
		s.say("3", "n3", badCluster("a"))
		w.expectTold("ambient a: rejected")
		if got := w.state(cds, "a"); got.State != NackedButCached || got.Version != "2" || got.Rejection.Version != "3" {
			t.Errorf("it is %+v", got)
		}
	})
}

const federated = `{"node":{"id":"test"},
	"xds_servers":[{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}],
	"authorities":{
		"same":{},
		"other":{"xds_servers":[
			{"server_uri":"passthrough:///two","channel_creds":[{"type":"insecure"}]},
			{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}]}}}`

const xdstp = "xdstp://%/envoy.config.cluster.v3.Cluster/a"

func of(authority string) string { return strings.ReplaceAll(xdstp, "%", authority) }

// Authorities share the connection and the stream of a server that they share.
func TestAuthoritiesShareServers(t *testing.T) {
	play(t, federated, func(t *testing.T, w *world) {
		w.want(cds, "a", of("same"), of("other"))
		one, two := w.servers["one"].accept(), w.servers["two"].accept()
		one.expect(`node=test Cluster [a ` + of("same") + `] version="" nonce=""`)
		two.expect(`node=test Cluster [` + of("other") + `] version="" nonce=""`)
		one.say("1", "n1", cluster("a"), cluster(of("same")))
		got := []string{w.told(), w.told()} // one for each authority
		if !(got[0] == "a=1" && got[1] == of("same")+"=1" || got[1] == "a=1" && got[0] == of("same")+"=1") {
			t.Fatalf("told %q", got)
		}
		one.hear()

		// Absence is judged within each.
		one.say("2", "n2", cluster("a"))
		w.expectTold("ambient " + of("same") + ": not found")
		one.hear()

		// The third falls back to the server that is there already, which
		// does not end when it returns.
		w.servers["two"].kill()
		one.expect(`Cluster [a ` + of("other") + ` ` + of("same") + `] version="2" nonce="n2"`)
		one.say("3", "n3", cluster("a"), cluster(of("other")))
		w.expectTold(of("other") + "=3")
		one.hear()
		w.servers["two"].start()
		two = w.servers["two"].accept()
		two.hear()
		two.say("1", "n1", cluster(of("other")))
		event[Returned](w)
		one.expect(`Cluster [a ` + of("same") + `] version="3" nonce="n3"`)

		// Nor when one of two authorities no longer wants anything.
		w.want(cds, "-a")
		one.expect(`Cluster [` + of("same") + `] version="3" nonce="n3"`)
		w.want(cds, "-"+of("same"))
		<-one.stream.Context().Done()
		if w.servers["one"].dials != 1 {
			t.Errorf("%d connections", w.servers["one"].dials)
		}
	})
}

func TestAwayIsOfAuthorities(t *testing.T) {
	play(t, federated, func(t *testing.T, w *world) {
		away := func(want ...bool) {
			t.Helper()
			for i, name := range []string{"a", of("same"), of("other")} {
				if got := w.client.Away("t", name); got != want[i] {
					t.Errorf("away %s: %v", name, got)
				}
			}
		}
		w.want(cds, "a", of("other"))
		one, two := w.servers["one"].accept(), w.servers["two"].accept()
		away(true, true, true)
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		away(false, true, true)
		two.say("1", "n1", cluster(of("other")))
		w.expectTold(of("other") + "=1")
		away(false, true, false)
		one.end <- nil
		one = w.servers["one"].accept()
		away(true, true, false)
		one.say("1", "n1", cluster("a"))
		one.hear()
		one.hear()
		away(false, true, false)
		w.want(cds, of("same")) // its server speaks already
		one.hear()
		away(false, false, false)
	})
}

func TestAnAuthorityThatIsNotThere(t *testing.T) {
	play(t, federated, func(t *testing.T, w *world) {
		w.want(cds, of("unheard"))
		w.expectTold(of("unheard") + ": unreachable")
		r := w.state(cds, of("unheard"))
		if r.State != Requested || !strings.Contains(r.Err.Error(), `"unheard"`) {
			t.Errorf("it is %+v", r)
		}
		if !w.client.Away("t", of("unheard")) {
			t.Error("not away")
		}
		w.want(cds, "-"+of("unheard"))
		if n := len(w.client.Status().Resources); n != 0 {
			t.Errorf("%d resources", n)
		}
		nothing(t, w.servers["one"].streams, "stream")
	})
}

// Context parameters may come in any order: it is one resource, told by each name
// that it was wanted by.
func TestNamesWithContextParameters(t *testing.T) {
	play(t, federated, func(_ *testing.T, w *world) {
		w.want(cds, of("same")+"?b=2&a=1")
		one := w.servers["one"].accept()
		one.expect(`node=test Cluster [` + of("same") + `?a=1&b=2] version="" nonce=""`)
		one.say("1", "n1", cluster(of("same")+"?b=2&a=1"))
		w.expectTold(of("same") + "?b=2&a=1=1")
		one.hear()
		w.want(cds, of("same")+"?a=1&b=2")
		w.expectTold(of("same") + "?a=1&b=2=1")
		one.expectNothing()
		one.say("2", "n2", cluster(of("same")+"?a=1&b=2", "other"))
		w.expectTold(of("same") + "?a=1&b=2=2, " + of("same") + "?b=2&a=1=2")
		one.hear()
		w.want(cds, "-"+of("same")+"?b=2&a=1")
		one.say("3", "n3", cluster(of("same")+"?a=1&b=2"))
		w.expectTold(of("same") + "?a=1&b=2=3")
		w.want(cds, "-"+of("same")+"?a=1&b=2")
		<-one.stream.Context().Done()
	})
}

func TestCanonicalNames(t *testing.T) {
	for name, want := range map[string]string{
		"a?b=1&a=2":               "a?b=1&a=2",
		"xdstp://x/t/n":           "xdstp://x/t/n",
		"xdstp://x/t/n?b=1&a=2":   "xdstp://x/t/n?a=2&b=1",
		"xdstp://x/t/n?a-b=1&a=2": "xdstp://x/t/n?a=2&a-b=1",
		"xdstp://x/t/n?b&a=%2F#d": "xdstp://x/t/n?a=%2F&b#d",
		"xdstp://x/t/n?":          "xdstp://x/t/n?",
	} {
		if got := canonical(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
		if again := canonical(want); again != want {
			t.Errorf("%q is %q, then %q", name, want, again)
		}
	}
}
