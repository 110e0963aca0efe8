package work_test

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/bench/work"
)

// TestWork does each kind of work briefly.
func TestWork(t *testing.T) {
	for _, name := range work.Names() {
		t.Run(name, func(t *testing.T) {
			s := start(t, name)
			r, err := s.Measure(work.Request{Duration: 20 * time.Millisecond, Goroutines: 2})
			if err != nil {
				t.Fatal(err)
			}
			if r.Count <= 0 || r.Elapsed <= 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func start(t *testing.T, name string) *work.Started {
	t.Helper()
	s, err := work.Start(t.Context(), name, work.Options{Localities: 5, Each: 4, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func TestInvalidWork(t *testing.T) {
	if _, err := work.Start(t.Context(), "nothing", work.Options{}); err == nil {
		t.Error("work that does not exist starts")
	}
	s := start(t, "lean-pick")
	for _, r := range []work.Request{{Duration: time.Second}, {Goroutines: 1}} {
		if _, err := s.Measure(r); err == nil {
			t.Errorf("%+v is measured", r)
		}
	}
}

func TestMemory(t *testing.T) {
	for _, r := range []work.MemoryRequest{
		{Kind: "endpoint", N: 20, Mode: "none"},
		{Kind: "endpoint", N: 20, Mode: "tcp"},
		{Kind: "endpoint", N: 20, Mode: "tcp_hold"},
		{Kind: "cluster", N: 20},
		{Kind: "lease", N: 1000},
	} {
		if _, err := work.Memory(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []work.MemoryRequest{{Kind: "endpoint", N: 1, Mode: "udp"}, {Kind: "dog", N: 1}, {Kind: "lease"}} {
		if _, err := work.Memory(r); err == nil {
			t.Errorf("%+v is measured", r)
		}
	}
}
