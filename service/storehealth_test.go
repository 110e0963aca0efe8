package service_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// notReady are the names of the checks that make /readyz fail.
func notReady(s *service.Service) []string {
	var names []string
	for _, c := range s.Health() {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestAStoreFileThatIsRemovedRefusesPushesAndReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, aside := filepath.Join(dir, "lbd.db"), filepath.Join(dir, "aside")
		s, stop := start(t, dir, nil)
		defer stop()
		body := assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)})
		push(t, s, sources.Endpoints, "orders", body)
		if err := os.Rename(file, aside); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := notReady(s); !slices.Equal(got, []string{"store_failing"}) {
			t.Errorf("without a push: not ready because of %q", got)
		}
		for name, body := range map[string][]byte{
			"the same":  body,
			"a new one": assignment(t, nil, place{"a", 0, 1, endpoints("b", 1)}),
		} {
			_, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: body})
			if code(err) != fault.StorageFailed || !strings.Contains(err.Error(), "removed or replaced") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := pick(s, picks.Request{Cluster: "orders"}); err != nil {
			t.Errorf("a pick: %v", err)
		}
		if err := os.Rename(aside, file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := notReady(s); got != nil {
			t.Errorf("once it is back: not ready because of %q", got)
		}
		push(t, s, sources.Endpoints, "orders", body)
		var types []observe.EventType
		for _, e := range s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventStoreFailing, observe.EventStoreRecovered}, Limit: 10}) {
			types = append(types, e.Type)
		}
		if !slices.Equal(types, []observe.EventType{observe.EventStoreRecovered, observe.EventStoreFailing}) {
			t.Errorf("events: %q", types)
		}
	})
}
