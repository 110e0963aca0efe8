package fleet

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/roster"
)

// Run ends also while something waits for it that it does not execute any more.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the wait may end in two ways
			s := &site{start: time.Now(), store: newFakeStore()}
			ctx, stop := context.WithCancel(t.Context())
			slow := func(context.Context) roster.Summary { time.Sleep(2 * time.Second); return roster.Summary{} }
			f := newFleet(&link{fakeStore: s.store}, Options{MaxTTL: time.Minute, Log: slog.New(slog.DiscardHandler), Summary: slow})
			f.clock = s.clock
			ended := make(chan struct{})
			go func() { defer close(ended); _ = f.Run(ctx) }()
			time.Sleep(5 * time.Second) // a summary is made
			stop()
			<-ended
			f.Roster(t.Context())
		}
	})
}
