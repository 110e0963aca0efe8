package client

import (
	"math"
	"time"
)

// The back-off of gRPC's connections and xDS streams.
const (
	backOffBase   = time.Second
	backOffFactor = 1.6
	backOffMax    = 120 * time.Second
	backOffJitter = 0.2
)

// backOff returns how long to wait after so many retries failed before. The first
// time is exact.
func backOff(retries int, draw func() float64) time.Duration {
	if retries == 0 {
		return backOffBase
	}
	wait := min(float64(backOffBase)*math.Pow(backOffFactor, float64(retries)), float64(backOffMax))
	return time.Duration(wait * (1 + backOffJitter*(2*draw()-1)))
}
