package backoff

import (
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	for _, c := range []struct {
		retries int
		draw    float64
		want    time.Duration
	}{
		{0, 0, time.Second},
		{1, 0.5, 1600 * time.Millisecond},
		{2, 0.5, 2560 * time.Millisecond},
		{3, 0.5, 4096 * time.Millisecond},
		{12, 0.5, 2 * time.Minute},
		{1000, 0, 96 * time.Second},
		{1000, 1, 144 * time.Second},
	} {
		if got := Wait(c.retries, func() float64 { return c.draw }); got.Round(time.Microsecond) != c.want {
			t.Errorf("after %d retries %v, want %v", c.retries, got, c.want)
		}
	}
}
