package sources

import (
	"errors"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/store"
)

// TestOutcomesOfPushes: outcomes differ by who must act, and each has a series from the
// start.
func TestOutcomesOfPushes(t *testing.T) {
	for code, want := range map[fault.Code]pushOutcome{
		fault.InvalidArgument: "rejected", fault.InvalidResource: "rejected", fault.UnsupportedMedia: "rejected", fault.TooLarge: "rejected",
		fault.PreconditionFailed: "precondition_failed", fault.PreconditionRequired: "precondition_failed",
		fault.UnknownCluster: "not_found", fault.UnknownTarget: "not_found", fault.Blocked: "blocked",
		fault.StorageFailed: "storage_failed", fault.Internal: "internal",
		fault.RateLimited: "rate_limited", fault.ShuttingDown: "shutting_down", fault.CallerGone: "cancelled",
	} {
		err := fault.Errorf(code, "no")
		if got := new(change).outcome(err); got != want || !slices.Contains(pushOutcomes, got) {
			t.Errorf("%s counts as %s, want %s", code, got, want)
		}
		if got := (&change{ChangeOptions: ChangeOptions{DryRun: true}}).outcome(err); got != "dry_run" {
			t.Errorf("%s of a dry run counts as %s", code, got)
		}
	}
	for err, want := range map[error]pushOutcome{
		store.ErrCannotWrite: "storage_failed", store.ErrClosed: "shutting_down", store.ErrTooLarge: "rejected", errors.New("else"): "internal",
	} {
		if got := new(change).outcome(storeError(err)); got != want {
			t.Errorf("%v counts as %s, want %s", err, got, want)
		}
	}
}
