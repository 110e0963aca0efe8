package api_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/files"
)

func TestDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, func(o *service.Options) { o.Name = "lbd-1" })
		send := serve(t, d, time.Hour)
		watched := answered(t, send(get("/v1/daemon/watch")))
		const healthy = `{"name":"lbd-1","version":"test","started_at":"T","conditions":[]}`
		if got := still(watched.must("daemon").data); got != healthy {
			t.Errorf("the stream begins with %s", got)
		}
		d.expect("/v1/daemon", healthy)

		d.service.FilesChanged(files.Set{Bad: []files.Bad{{File: "b.yaml", Err: errors.New("line 1:\nnot YAML"), Since: time.Now()}}})
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

		d.service.AddConditions(func() []observe.Condition {
			return []observe.Condition{{Kind: observe.ConditionStoreFailing, Since: time.Now(), Text: "lbd.db was replaced", NotReady: true}}
		})
		got := d.must(503, "GET", "/readyz", "").Body.String()
		if !strings.Contains(got, "\n[-]store_failing: lbd.db was replaced\n") || !strings.HasSuffix(got, "readyz check failed\n") {
			t.Errorf("got %s", got)
		}
		d.refused(fault.InvalidArgument, "GET", "/v1/daemon?x", "")
		d.refused(fault.InvalidArgument, "GET", "/v1/daemon/watch?x", "")
	})
}
