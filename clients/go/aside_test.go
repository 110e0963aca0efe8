package lbdclient

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a asides
		avoided := func(address string, want bool) {
			t.Helper()
			if got := a.avoids(address, now()); got != want {
				t.Errorf("%s is avoided: %v", address, got)
			}
		}
		a.failed("a", false, 2)
		avoided("a", true)
		avoided("b", false)
		time.Sleep(1200 * time.Millisecond)
		avoided("a", false) // the trial
		avoided("a", true)
		a.failed("a", false, 2)
		time.Sleep(1600*time.Millisecond - 1)
		avoided("a", true)
		time.Sleep(801 * time.Millisecond)
		avoided("a", false)
		a.failed("a", true, 2) // it was connected
		avoided("a", false)

		a.failed("b", true, 2)
		a.failed("b", true, 2)
		a.answered("b")
		a.failed("b", true, 2)
		a.failed("b", true, 2)
		avoided("b", false)
		a.failed("b", true, 2)
		avoided("b", true)
		a.failed("c", false, 2)
		a.failed("d", false, 2) // more than half
		avoided("c", true)
		avoided("d", false)
		a.forget(func(address string) bool { return address == "b" })
		avoided("b", false)
		if got := a.avoided(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("avoided %v", got)
		}
		time.Sleep(forgetAside + 2*maxAside)
		if got := a.avoided(); len(got) > 0 || a.known.Load() > 0 {
			t.Errorf("avoided %v, %d known", got, a.known.Load())
		}
	})
}

// TestAsideKeepsShares: without an endpoint, the others keep their shares of each other.
func TestAsideKeepsShares(t *testing.T) {
	c := newCluster(&Client{config: Config{MaxAge: time.Minute}}, "orders")
	answer := answered{Generation: 1}
	for i, n := range []int{10, 20, 30, 40} {
		for range n {
			answer.Picks = append(answer.Picks, Choice{Address: fmt.Sprint(i)})
		}
	}
	b, err := c.batchOf("", answer)
	if err != nil {
		t.Fatal(err)
	}
	var a asides
	a.failed("3", false, 2)
	got := map[string]int{}
	for range 600 {
		got[b.take(&a, now(), nil).address]++
	}
	if got["0"] != 100 || got["1"] != 200 || got["2"] != 300 {
		t.Errorf("%v", got)
	}
}

func TestConnectLimit(t *testing.T) {
	var c connects
	for _, step := range []struct{ took, want time.Duration }{
		{0, minHurry}, {10 * time.Millisecond, minHurry}, {400 * time.Millisecond, 1200 * time.Millisecond}, {time.Millisecond, 1200 * time.Millisecond},
	} {
		c.add(step.took)
		if got := c.limit(); got != step.want {
			t.Errorf("after %v: %v, want %v", step.took, got, step.want)
		}
	}
	for range len(c.took) {
		c.add(time.Millisecond)
	}
	if got := c.limit(); got != minHurry {
		t.Errorf("%v", got)
	}
}

// TestTryPickKeepsTrials: an address that is not accepted is no trial, and one that is set aside is the last resort.
func TestTryPickKeepsTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		known, err := c.cluster("orders")
		if err != nil {
			t.Fatal(err)
		}
		b, err := known.batchOf("", answered{Generation: 1, Picks: []Choice{{Address: "x"}, {Address: "y"}, {Address: "z"}}})
		if err != nil {
			t.Fatal(err)
		}
		known.batch.Store(b)
		tries := func(accept func(address string) bool, want string) {
			t.Helper()
			for range 12 {
				if pick, err := c.TryPick("orders", accept); err != nil || pick.Address() != want {
					t.Fatalf("%v, %v, want %s", pick, err, want)
				}
			}
		}
		known.asides.failed("x", false, 2)
		tries(func(address string) bool { return address != "y" }, "z")
		tries(func(address string) bool { return address == "x" }, "x")
		time.Sleep(2 * time.Second)
		tries(func(address string) bool { return address == "y" }, "y")
		if known.asides.avoids("x", now()) {
			t.Error("an address that was not accepted is the trial")
		}
		c.Close()
	})
}
