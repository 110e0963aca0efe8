package service

import (
	"errors"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/xds/store"
)

// TestOutcomesOfPushes: who has to act tells them apart, and a series is there for
// each from the start.
func TestOutcomesOfPushes(t *testing.T) {
	for code, want := range map[Code]pushOutcome{
		InvalidArgument: "rejected", InvalidResource: "rejected", UnsupportedMedia: "rejected", TooLarge: "rejected",
		PreconditionFailed: "precondition_failed", PreconditionRequired: "precondition_failed",
		UnknownCluster: "not_found", UnknownTarget: "not_found", Blocked: "blocked",
		StorageFailed: "storage_failed", Internal: "internal",
		RateLimited: "rate_limited", ShuttingDown: "shutting_down", CallerGone: "cancelled",
	} {
		err := errorf(code, "no")
		if got := new(change).outcome(err); got != want || !slices.Contains(pushOutcomes, got) {
			t.Errorf("%s counts as %s, want %s", code, got, want)
		}
		if got := (&change{dryRun: true}).outcome(err); got != "dry_run" {
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
