package wake_test

import (
	"testing"

	"github.com/lbd-dev/lbd/xds/wake"
)

// TestOne: wakes before the goroutine receives are one, and none of them is lost.
func TestOne(t *testing.T) {
	o := wake.NewOne()
	o.Wake()
	o.Wake()
	<-o
	select {
	case <-o:
		t.Error("woken twice")
	default:
	}
	o.Wake()
	<-o
}

// TestAll: who waits is woken by the next change, and only by that.
func TestAll(t *testing.T) {
	var a wake.All
	a.Notify()
	first, again := a.Wait(), a.Wait()
	if first != again {
		t.Error("those who wait at a time do not share a channel")
	}
	select {
	case <-first:
		t.Error("woken by an earlier change")
	default:
	}
	a.Notify()
	<-first
	if next := a.Wait(); next == first {
		t.Error("the next wait has the same channel")
	}
}
