package api

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
)

// A lease is written as encoding/json would write it.
func TestLeasesAreWrittenAsTheirTypeSays(t *testing.T) {
	at := time.Date(2026, 11, 23, 1, 2, 3, 400, time.UTC)
	for _, l := range []picks.LeaseState{
		{},
		{ID: someLease(t), Cluster: "orders", Address: "10.0.0.7:8080", State: "held", GrantedAt: at, ExpiresAt: at.Add(time.Minute)},
		{
			ID: someLease(t), Cluster: "grün \"€\"", Leaf: "\"ü", Target: "xds:///<shop>", Address: "[::1]:80", Priority: 3, Owner: ledger.Owner{Identity: "a&b", Name: "web\n1"},
			State: "ended", GrantedAt: at, ExpiresAt: at.Add(time.Second), Outcome: picks.Expired, EndedAt: at.Add(1500 * time.Millisecond),
		},
		{Cluster: "a", Owner: ledger.Owner{Name: "b"}, Outcome: picks.Success},
	} {
		if got, want := string(appendLease(nil, &l)), string(encode(l)); got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	}
}
