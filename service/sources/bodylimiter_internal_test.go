package sources

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/service/fault"
)

// TestPushesTakeTurns: two bodies are decoded at a time, and at most 64 pushes wait.
func TestPushesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSources(t)
		codeOf := func(err error) fault.Code {
			e, _ := errors.AsType[*fault.Error](err)
			return e.Code
		}
		push := func(ctx context.Context, i int) error {
			if i%2 == 0 {
				_, err := s.Push(ctx, &PushRequest{Kind: Endpoints, Cluster: "orders", Body: []byte("{")})
				return err
			}
			_, err := s.PushSnapshot(ctx, &SnapshotRequest{Body: []byte("{")})
			return err
		}
		for range maxDecoding {
			if err := s.bodies.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		codes := make(chan fault.Code, MaxWaitingPushes)
		for i := range MaxWaitingPushes {
			ctx := t.Context()
			if i < 4 {
				ctx = gone
			}
			go func() { codes <- codeOf(push(ctx, i)) }()
		}
		synctest.Wait()
		for i := range 2 {
			if err := push(t.Context(), i); codeOf(err) != fault.RateLimited {
				t.Errorf("one more: %v", err)
			}
		}
		cancel()
		for range 4 {
			if got := <-codes; got != fault.CallerGone {
				t.Errorf("a canceled push: %s", got)
			}
		}
		synctest.Wait()
		if len(codes) != 0 {
			t.Fatalf("%d pushes did not wait for their turn", len(codes))
		}
		s.bodies.release()
		for range MaxWaitingPushes - 4 {
			if got := <-codes; got != fault.InvalidArgument { // read, and wrong
				t.Errorf("after its turn: %s", got)
			}
		}
		s.bodies.release()
		if len(s.bodies.slots) != 0 || s.bodies.waiting.Load() != 0 {
			t.Errorf("%d turns, %d waiting are left", len(s.bodies.slots), s.bodies.waiting.Load())
		}
	})
}
