package roster

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/service/ledger"
)

func TestReplica(t *testing.T) {
	r := Replica{Name: "host-1", Version: "1.2", Address: "https://10.0.0.1:8080", Zone: "a"}
	if got, err := DecodeReplica(r.Encode()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
	for name, value := range map[string]string{
		"not JSON":            "x",
		"too long":            `{"name":"` + strings.Repeat("x", maxReplicaBytes) + `"}`,
		"a long name":         `{"name":"` + strings.Repeat("x", maxText+1) + `"}`,
		"an invalid name":     "{\"name\":1}",
		"a path":              `{"address":"http://10.0.0.1:8080/x"}`,
		"credentials":         `{"address":"http://u:p@10.0.0.1:8080"}`,
		"no port":             `{"address":"http://10.0.0.1"}`,
		"no host":             `{"address":"http://:8080"}`,
		"another scheme":      `{"address":"file://10.0.0.1:8080"}`,
		"a query":             `{"address":"http://10.0.0.1:8080?x"}`,
		"an address, no URL":  `{"address":"10.0.0.1:8080"}`,
		"a unix socket":       `{"address":"unix:/run/lbd"}`,
		"a control character": `{"address":"http://10.0.0.1\n:8080"}`,
	} {
		if got, err := DecodeReplica([]byte(value)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := DecodeReplica([]byte("{}")); err != nil || got != (Replica{}) {
		t.Errorf("{}: %+v, %v", got, err)
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Index: 7, Failing: []Failing{{"b", "1"}, {"a", "2"}, {"a", "1"}, {"a", "1"}}}
	s.Bound()
	want := Summary{Index: 7, Failing: []Failing{{"a", "1"}, {"a", "2"}, {"b", "1"}}}
	if got, err := DecodeSummary(s.Encode()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	long := Summary{More: 1}
	for i := range 1000 {
		long.Failing = append(long.Failing, Failing{strings.Repeat("<", maxText), fmt.Sprint(i)})
	}
	long.Bound()
	if got, err := DecodeSummary(long.Encode()); err != nil || len(got.Failing)+got.More != 1001 || len(got.Failing) < 2 {
		t.Errorf("%d listed, %d more, %v", len(got.Failing), got.More, err)
	}
	for name, value := range map[string]string{
		"not JSON":     "x",
		"negative":     `{"more":-1}`,
		"out of order": `{"failing":[{"cluster":"b"},{"cluster":"a"}]}`,
		"twice":        `{"failing":[{"cluster":"a"},{"cluster":"a"}]}`,
		"too many":     `{"failing":[` + strings.Repeat(`{},`, MaxFailing) + `{}]}`,
	} {
		if got, err := DecodeSummary([]byte(value)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDiffers(t *testing.T) {
	was := Summary{Index: 7, PicksPerSecond: 100, BehindSeconds: 1, Failing: []Failing{{"a", "1"}}}
	for name, tt := range map[string]struct {
		edit func(*Summary)
		want bool
	}{
		"nothing":            {func(*Summary) {}, false},
		"the index":          {func(s *Summary) { s.Index++ }, true},
		"a similar rate":     {func(s *Summary) { s.PicksPerSecond = 105 }, false},
		"another rate":       {func(s *Summary) { s.PicksPerSecond = 150 }, true},
		"somewhat behind":    {func(s *Summary) { s.BehindSeconds = 4 }, false},
		"far behind":         {func(s *Summary) { s.BehindSeconds = 60 }, true},
		"another endpoint":   {func(s *Summary) { s.Failing = []Failing{{"a", "2"}} }, true},
		"more are not named": {func(s *Summary) { s.More++ }, true},
	} {
		next := was
		tt.edit(&next)
		if got := was.Differs(next); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func fleetOf3() *Roster {
	failing := &Summary{Index: 5, Failing: []Failing{{"orders", "10.0.0.7:8080"}, {"secret", "10.0.0.8:8080"}, {"down", "10.0.0.9:8080"}}}
	return &Roster{
		Self: "b", Joined: true, Age: time.Second, Err: errors.New("lost"),
		Members: []Member{
			{Replica: Replica{ID: "a", Name: "z"}, Summary: failing},
			{Replica: Replica{ID: "b", Name: "y"}, Summary: &Summary{Index: 9, Failing: []Failing{{"down", "10.0.0.9:8080"}}}},
			{Replica: Replica{ID: "c"}, Gone: true},
			{Replica: Replica{ID: "d", Name: "x"}}, // no summary yet
		},
		Limits: []Limit{
			{Cluster: "orders", Shares: []Share{
				{Entry: share.Entry{Replica: "a", Limit: 100, Share: 20, Demand: 30}},
				{Entry: share.Entry{Replica: "b", Limit: 90, Share: 50, Demand: 5}},
				{Entry: share.Entry{Replica: "c", Limit: 80, Share: 10}, Gone: true, Left: time.Second},
			}},
			{Cluster: "secret", Shares: []Share{{Entry: share.Entry{Replica: "a", Limit: 1, Share: 1}}}},
		},
	}
}

func TestState(t *testing.T) {
	s := fleetOf3().StateIn(nil)
	if !s.Shared || s.Replica != "b" || s.Error != "lost" || s.SummaryAge != "1s" {
		t.Errorf("%+v", s)
	}
	var ids []string
	for _, r := range s.Replicas {
		ids = append(ids, r.ID+r.State)
	}
	if want := []string{"cgone", "dlive", "blive", "alive"}; !reflect.DeepEqual(ids, want) {
		t.Errorf("replicas %v", ids)
	}
	if a := s.Replicas[3]; a.Summary.Behind != 4 || *a.Summary.Unreachable != 3 || len(a.Shares) != 2 {
		t.Errorf("%+v", a)
	}
	if b := s.Replicas[2]; b.Summary.Behind != 0 || !b.Self {
		t.Errorf("%+v", b)
	}
	if c := s.Replicas[0]; c.Shares[0].ReturnsWithin != "1s" || c.Summary != nil {
		t.Errorf("%+v", c)
	}
	if want := (LimitState{Cluster: "orders", Limit: 90, Shares: 80, Demand: 35, Free: 10, Kept: 10, Replicas: 2}); s.Limits[0] != want {
		t.Errorf("%+v", s.Limits[0])
	}
	if free := s.Limits[1].Free; free != 0 {
		t.Errorf("%d of a limit of 1 are free, and 1 is used", free)
	}
	var says []string
	for _, d := range s.Disagreements {
		says = append(says, d.Says)
	}
	if want := []string{"1 of 2 replicas cannot reach 10.0.0.7:8080", "1 of 2 replicas cannot reach 10.0.0.8:8080"}; !reflect.DeepEqual(says, want) {
		t.Errorf("%q", says)
	}
	if d := s.Disagreements[0]; !reflect.DeepEqual(d.From, []string{"z"}) {
		t.Errorf("%+v", d)
	}
}

// TestScope: what is about other clusters is not shown.
func TestScope(t *testing.T) {
	s := fleetOf3().StateIn(ledger.NewScope(func(name string) bool { return name == "orders" }))
	if len(s.Limits) != 1 || len(s.Disagreements) != 1 || len(s.Replicas[3].Shares) != 1 || s.Replicas[3].Summary.Unreachable != nil {
		t.Errorf("%+v", s)
	}
	if s := (*Roster)(nil).StateIn(nil); s.Shared || s.Replicas == nil || s.Limits == nil || s.Disagreements == nil {
		t.Errorf("without a fleet: %+v", s)
	}
}

func TestStateIsBounded(t *testing.T) {
	r := &Roster{Members: []Member{{Replica: Replica{ID: "a"}, Summary: &Summary{}}}}
	for i := range MaxLimits + 1 {
		r.Limits = append(r.Limits, Limit{Cluster: fmt.Sprint(i), Shares: []Share{{Entry: share.Entry{Replica: "a"}}}})
	}
	for i := range 8 {
		m := Member{Replica: Replica{ID: fmt.Sprint(i)}, Summary: &Summary{}}
		for j := range MaxFailing {
			m.Summary.Failing = append(m.Summary.Failing, Failing{fmt.Sprint(i), fmt.Sprint(j)})
		}
		r.Members = append(r.Members, m)
	}
	s := r.StateIn(nil)
	if len(s.Limits) != MaxLimits || s.MoreLimits != 1 || len(s.Disagreements) != MaxDisagreements || s.MoreDisagreements != 8*MaxFailing-MaxDisagreements {
		t.Errorf("%d limits, %d more; %d disagreements, %d more", len(s.Limits), s.MoreLimits, len(s.Disagreements), s.MoreDisagreements)
	}
	for _, m := range s.Replicas {
		if m.ID == "a" && (len(m.Shares) != MaxShares || m.MoreShares != MaxLimits+1-MaxShares) {
			t.Errorf("%d shares, %d more", len(m.Shares), m.MoreShares)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","address":"http://a:1"}`))
	f.Add(Summary{Index: 1, Failing: []Failing{{"a", "b"}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeReplica(b); err == nil {
			if again, err := DecodeReplica(r.Encode()); err != nil || again != r {
				t.Errorf("%+v: %+v, %v", r, again, err)
			}
		}
		if s, err := DecodeSummary(b); err == nil {
			n := len(s.Failing)
			if s.Bound(); len(s.Failing) > n {
				t.Error("grew")
			}
			if again, err := DecodeSummary(s.Encode()); err != nil || again.Differs(s) {
				t.Errorf("%+v: %+v, %v", s, again, err)
			}
		}
	})
}
