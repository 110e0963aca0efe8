package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/files"
)

func TestEventsAreListedTheNewestFirst(t *testing.T) {
	d := start(t, nil)
	d.expect("/v1/events", `{"events":[]}`)
	d.must(http.StatusCreated, "PUT", orders, namedJSON)
	d.refused(fault.InvalidArgument, "PUT", "/v1/clusters/a%2Fb/endpoints", "{")
	list := func(query string) []observe.Event {
		t.Helper()
		return decode[api.EventList](t, d.must(200, "GET", "/v1/events"+query, "").Body.Bytes()).Events
	}
	all := list("")
	if len(all) < 3 || !slices.IsSortedFunc(all, func(a, b observe.Event) int { return int(b.ID) - int(a.ID) }) {
		t.Fatalf("not the newest first: %+v", all)
	}
	if got := list("?limit=1"); len(got) != 1 || got[0].ID != all[0].ID {
		t.Errorf("limit=1: %+v", got)
	}
	if got := list("?cluster=unknown"); len(got) != 0 {
		t.Errorf("of a cluster that is not known: %+v", got)
	}
	for _, e := range list("?cluster=orders") {
		if e.Cluster != "orders" {
			t.Errorf("of orders: %+v", e)
		}
	}
	const pushed = `{"events":[{"id":N,"time":"T","type":"pushed","cluster":"orders","says":"1 resource changed: orders: added with 1 usable endpoint","by":"192.0.2.1:1234",` +
		`"changes":[{"resource":"ClusterLoadAssignment/orders","change":"added"}]}]}`
	const refused = `{"events":[{"id":N,"time":"T","type":"push_refused","cluster":"a/b","says":"a push was refused: invalid_argument",` +
		`"reason":"invalid_argument","error":E,"by":"192.0.2.1:1234"}]}`
	for query, want := range map[string]string{
		"?type=pushed":                                             pushed,
		"?cluster=orders&type=pushed":                              pushed,
		"?cluster=a%2Fb&type=push_refused":                         refused,
		"?cluster=a%2Fb&type=pushed":                               `{"events":[]}`,
		"?cluster=a%2Fb&type=push_refused&type=pushed&type=pushed": refused,
	} {
		got := still(d.must(200, "GET", "/v1/events"+query, "").Body.String())
		got = eventIDs.ReplaceAllString(got, `"id":N`)
		if got = reasons.ReplaceAllString(got, `"error":E`); got != want+"\n" {
			t.Errorf("%s: got  %swant %s", query, got, want)
		}
	}
}

func TestEventsRefusals(t *testing.T) {
	d := start(t, nil)
	p, _ := d.refused(fault.InvalidArgument, "GET", "/v1/events?type=explosion", "")
	for _, known := range observe.EventTypes {
		if !strings.Contains(p.Detail, string(known)) {
			t.Errorf("%s is not named: %s", known, p.Detail)
		}
		d.must(200, "GET", "/v1/events?type="+string(known), "")
	}
	for _, query := range []string{"?type", "?limit=0", "?limit=5001", "?limit=few", "?cluster=", "?x=1", "?type=pushed&type=explosion"} {
		d.refused(fault.InvalidArgument, "GET", "/v1/events"+query, "")
	}
	d.must(200, "GET", "/v1/events?limit=5000", "")
}

// The contract lists the types that there are, where they are asked for and
// where they are answered.
func TestContractListsEveryEventType(t *testing.T) {
	doc, err := spec()
	servicetest.Must(t, err)
	lists := map[string][]any{"an event": doc.Components.Schemas["EventType"].Value.Enum}
	for _, path := range []string{"/v1/events", "/v1/events/watch"} {
		for _, p := range doc.Paths.Value(path).Get.Parameters {
			if p.Value.Name == "type" {
				lists["the parameter of "+path] = p.Value.Schema.Value.Items.Value.Enum
			}
		}
	}
	if len(lists) != 3 {
		t.Errorf("found only %v", lists)
	}
	for where, list := range lists {
		var names []observe.EventType
		for _, name := range list {
			names = append(names, observe.EventType(fmt.Sprint(name)))
		}
		if !slices.Equal(names, observe.EventTypes) {
			t.Errorf("%s: %v, want %v", where, names, observe.EventTypes)
		}
	}
}

func TestDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		d := start(t, func(o *service.Options) {
			o.Name, o.Conditions = "lbd-1", []func() []observe.Condition{func() []observe.Condition {
				if !failing.Load() {
					return nil
				}
				return []observe.Condition{{Kind: observe.ConditionStoreFailing, Since: time.Now(), Text: "lbd.db was replaced", NotReady: true}}
			}}
		})
		send := serve(t, d, time.Hour)
		watched := answered(t, send(get("/v1/daemon/watch")))
		const healthy = `{"name":"lbd-1","version":"test","started_at":"T","conditions":[]}`
		if got := still(watched.must("daemon").data); got != healthy {
			t.Errorf("the stream begins with %s", got)
		}
		d.expect("/v1/daemon", healthy)

		d.service.Sources.FilesChanged(files.Set{Bad: []files.Bad{{File: "b.yaml", Err: errors.New("line 1:\nnot YAML"), Since: time.Now()}}})
		const bad = `{"name":"lbd-1","version":"test","started_at":"T","conditions":[{"kind":"file_bad","subject":"b.yaml","since":"T",` +
			`"text":"resource file b.yaml is bad (line 1:\nnot YAML); none of its resources are in use",` +
			`"remedy":"correct the file; lbd check lists every error"}]}`
		if got := still(watched.must("daemon").data); got != bad {
			t.Errorf("a file became bad: %s", got)
		}
		const lines = "[+]store: what was pushed is loaded\n[+]serving: taking picks\n" +
			"[!]file_bad: resource file b.yaml is bad (line 1: not YAML); none of its resources are in use: correct the file; lbd check lists every error\n" +
			"readyz check passed\n"
		d.expect("/readyz?verbose", lines)
		d.expect("/readyz", "ok\n")

		failing.Store(true)
		got := d.must(503, "GET", "/readyz", "").Body.String()
		if !strings.Contains(got, "\n[-]store_failing: lbd.db was replaced\n") || !strings.HasSuffix(got, "readyz check failed\n") {
			t.Errorf("got %s", got)
		}
		d.refused(fault.InvalidArgument, "GET", "/v1/daemon?x", "")
		d.refused(fault.InvalidArgument, "GET", "/v1/daemon/watch?x", "")
	})
}
