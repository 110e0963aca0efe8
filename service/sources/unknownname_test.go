package sources_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// A deletion of many pushed clusters, whose names become unknown ones, leaves places for new names.
func TestUnknownNamesAfterDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 3
		s, _, _, _ := follow(t, 0, func(o *service.Options) { o.Sources.OnDemandUnknown = places })
		pushed := make([]servicetest.Object, places)
		for i := range pushed {
			pushed[i] = servicetest.Assigned(fmt.Sprint("pushed", i), "a-0")
		}
		servicetest.PushAll(t, s, pushed...)
		body := servicetest.Encode(servicetest.Object{"resources": []servicetest.Object{servicetest.Assigned("other", "a-0")}})
		_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: body, Replace: true, MaxRemoved: -1})
		servicetest.Must(t, err)
		if n := s.Sources.XDS(sources.XDSFilter{}).OnDemand.Unknown; n != places {
			t.Errorf("%d names are unknown", n)
		}
		for i := range places + 1 {
			want := fault.PickTimeout
			if i == places {
				want = fault.RateLimited
			}
			if _, err := servicetest.Pick(s, picks.Request{Cluster: fmt.Sprint("new", i)}); servicetest.Code(err) != want {
				t.Errorf("new name %d: %v", i, err)
			}
		}
	})
}

// A caller that picks from names that do not exist takes half of the places for unknown names, and then
// replaces its own only; others have the rest. A name that is released is no longer counted.
func TestUnknownNamesPerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, own = 10, 5
		s, _, _, _ := follow(t, 0, func(o *service.Options) { o.Sources.OnDemandUnknown = places })
		quotas := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.UnknownNames: places + 1}, MaxAccounts: 10})
		accounts := map[string]*quota.Account{}
		for _, name := range []string{"flood", "web", "late"} {
			accounts[name] = quotas.Enter(name, nil, time.Now())
		}
		// request picks from an unknown name, and returns why it has no place; "" if it has one.
		request := func(caller string, i int) string {
			_, err := servicetest.Pick(s, picks.Request{Cluster: fmt.Sprint(caller, i), Account: accounts[caller]})
			if servicetest.Code(err) == fault.RateLimited {
				return err.Error()
			}
			if servicetest.Code(err) != fault.PickTimeout {
				t.Errorf("%s %d: %v", caller, i, err)
			}
			return ""
		}
		used := func(want map[string]int64) {
			t.Helper()
			for caller, n := range want {
				if got := accounts[caller].Used(quota.UnknownNames); got != n {
					t.Errorf("%s has %d names; want %d", caller, got, n)
				}
			}
		}
		for i := range 100 {
			why := request("flood", i)
			if (why == "") != (i < own) || why != "" && !strings.Contains(why, "the caller's limit of unknown_names is reached (5)") {
				t.Errorf("flood %d: %s", i, why)
			}
		}
		for i := range own {
			if why := request("web", i); why != "" {
				t.Errorf("web %d: %s", i, why)
			}
		}
		used(map[string]int64{"flood": own, "web": own})
		if why := request("late", 0); !strings.Contains(why, "the limit of unknown names is reached (10, --on-demand-unknown)") {
			t.Errorf("all places are taken: %q", why)
		}
		used(map[string]int64{"late": 0})

		time.Sleep(sources.UnknownTenure)
		for i := range own {
			if why := request("flood", 200+i); why != "" { // replaces its own
				t.Errorf("flood again: %s", why)
			}
		}
		if why := request("flood", 300); why == "" {
			t.Error("a name lost its place within a second")
		}
		used(map[string]int64{"flood": own, "web": own})
		if why := request("late", 0); why != "" { // replaces the oldest, of web
			t.Errorf("late: %s", why)
		}
		used(map[string]int64{"flood": own, "web": own - 1, "late": 1})

		time.Sleep(2 * sources.UnknownIdle)
		synctest.Wait()
		used(map[string]int64{"flood": 0, "web": 0, "late": 0})
		if quotas.Use(quota.UnknownNames) != 0 {
			t.Error("names are counted that are released")
		}
	})
}
