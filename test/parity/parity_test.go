package parity_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// concurrent is how many scenarios run at a time. They wait more than they
// work.
const concurrent = 24

// TestParity runs PARITY_N scenarios (200) of the seed PARITY_SEED, which is a
// new one each time where it is not set. A scenario depends on the seed and its
// own number only: go test -run 'TestParity/s17$' runs it alone.
func TestParity(t *testing.T) { runAll(t, "s", "PARITY_N", 200, runScenario) }

// TestTargets runs PARITY_TARGETS scenarios (100) of the same seed, in which both
// sides follow the management server, and routes choose the cluster.
func TestTargets(t *testing.T) { runAll(t, "t", "PARITY_TARGETS", 100, runHostingScenario) }

func runAll(t *testing.T, letter, variable string, otherwise uint64, run func(*testing.T, uint64, int, *management, *grpc.Server)) {
	n := int(number(t, variable, otherwise))
	if n == 0 {
		t.Skipf("%s is 0", variable)
	}
	seed := number(t, "PARITY_SEED", uint64(time.Now().UnixNano()))
	fmt.Printf("parity: PARITY_SEED=%d %s=%d\n", seed, variable, n)

	m, err := newManagement()
	must(t, err)
	defer m.close()
	server := grpc.NewServer(grpc.ConnectionTimeout(time.Hour)) // lbd holds connections and says nothing
	defer server.Stop()

	begin := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, concurrent)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			t.Run(fmt.Sprintf("%s%d", letter, i), func(t *testing.T) { run(t, seed, i, m, server) })
		})
	}
	wg.Wait()
	t.Logf("%d scenarios of seed %d in %v", n, seed, time.Since(begin).Round(time.Second))
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v > math.MaxInt64 {
		t.Fatalf("%s is %q: it must be a number", variable, text)
	}
	return v
}

// must ends the test if err is not nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
