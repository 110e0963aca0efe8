package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestMutants: the check of linearizability finds seeded bugs within 10 runs. A bug is a change
// of a copy of the source, with which lbd is built.
func TestMutants(t *testing.T) {
	if !long() {
		t.Skip("set LBD_TEST_LONG=1")
	}
	for name, m := range map[string]struct{ file, from, to string }{
		"commits that do not compare what was read": {
			"commit.go", "append(s.comparisons(a),", "append([]clientv3.Cmp(nil),",
		},
		"commits that only compare whether there is an entry": {
			"writer.go", "all = append(all, unchanged(at), clientv3.Compare(clientv3.CreateRevision(at), \">\", 0))",
			"all = append(all, clientv3.Compare(clientv3.CreateRevision(at), \">\", 0))",
		},
		"errors of an outdated state": {
			"commit.go", "return s.confirm(ctx, client, a)", "return outcome{revision: a.applied}",
		},
		"acknowledged before it is applied": {
			"writer.go", "err := s.arrived.wait(ctx, revision)", "err := ctx.Err()",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, buildDaemon(t, overlay(t, [3]string{"../../xds/store/etcd/" + m.file, m.from, m.to})))
			for run := range 10 {
				before := f.snapshotNow(t)
				all, stale := history(t, f, 5*time.Second, rand.Uint64())
				if len(stale) > 0 {
					t.Logf("found in run %d: %s", run+1, stale[0])
					return
				}
				all = append([]porcupine.Operation{{Input: operation{kind: "snapshot", required: -1}, Call: -2, Output: response{code: "ok", content: before}, Return: -1}}, all...)
				model.Init = func() []any { return []any{before} }
				if porcupine.CheckOperationsTimeout(model.ToModel(), all, time.Minute) == porcupine.Illegal {
					t.Logf("found in run %d", run+1)
					return
				}
			}
			t.Error("not found in 10 runs")
		})
	}
}

// overlay returns a file for go build -overlay, with changes of source files: each is a file, a text in it and what
// replaces that.
func overlay(t *testing.T, changes ...[3]string) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	for i, c := range changes {
		path, err := filepath.Abs(c[0])
		noError(t, err)
		from := path
		if replace[path] != "" {
			from = replace[path]
		}
		source, err := os.ReadFile(from)
		if err != nil || strings.Count(string(source), c[1]) != 1 {
			t.Fatalf("%s has not once what is replaced, %s: %v", path, c[1], err)
		}
		replace[path] = write(t, filepath.Join(dir, fmt.Sprint(i, ".go")), []byte(strings.Replace(string(source), c[1], c[2], 1)))
	}
	list, _ := json.Marshal(map[string]any{"Replace": replace})
	return write(t, filepath.Join(dir, "overlay.json"), list)
}
