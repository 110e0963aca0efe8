package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

const head = `| client, adapter | direct, µs | batch adds, µs | pick adds, µs | nginx adds, µs | batch / direct | pick / direct | nginx / direct |
| --- | --- | --- | --- | --- | --- | --- | --- |
`

// line is a row of the table.
func line(name, adapter string, ways []*way) string {
	by := make(map[string][]float64)
	fresh := ""
	for _, w := range ways {
		by[w.name] = w.micros
		if w.conns > int64(w.sent/2) {
			fresh += " " + w.name
		}
	}
	if fresh != "" {
		fresh = " (a connection for each request:" + fresh + ")"
	}
	cells := []string{name + ", " + adapter + fresh, fmt.Sprintf("%.0f", summarize(by["direct"]).median)}
	for _, way := range []string{"batch", "pick", "nginx"} {
		cells = append(cells, summarize(pairs(by[way], by["direct"], func(a, b float64) float64 { return a - b })).text("%.0f"))
	}
	for _, way := range []string{"batch", "pick", "nginx"} {
		cells = append(cells, summarize(pairs(by[way], by["direct"], func(a, b float64) float64 { return a / b })).text("%.2f"))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// pairs combines the values of the same rounds.
func pairs(a, b []float64, f func(a, b float64) float64) (all []float64) {
	for i := range a {
		all = append(all, f(a[i], b[i]))
	}
	return all
}

// summary is a median, and its 95 % confidence interval.
type summary struct{ median, low, high float64 }

// summarize takes the interval from the order statistics: the median is between the k-th
// lowest and the k-th highest value with the probability that neither k or fewer of n
// values are below it nor above it, which is binomial.
func summarize(values []float64) summary {
	n := len(values)
	if n == 0 {
		return summary{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(values))
	k, outside, p := 0, 0.0, math.Pow(0.5, float64(n))
	for i := range n / 2 {
		if outside += 2 * p; outside > 0.05 {
			break
		}
		k = i
		p *= float64(n-i) / float64(i+1)
	}
	return summary{(s[(n-1)/2] + s[n/2]) / 2, s[k], s[n-1-k]}
}

func (s summary) text(format string) string {
	if math.IsNaN(s.median) {
		return "–"
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", s.median, s.low, s.high)
}

// machine says where and when the figures were measured.
func machine(nginx string) string {
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range bytes.Lines(text) {
			if name, value, _ := strings.Cut(string(l), ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown")
	}
	return fmt.Sprintf("%s, %d cores, nginx %s, load %s at %s.", model, runtime.NumCPU(), nginx, strings.TrimSpace(string(load)), time.Now().UTC().Format(time.RFC3339))
}
