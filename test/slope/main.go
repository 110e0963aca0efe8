// Command slope runs every reader of lbd's input with each shape of input at four sizes, each twice the one
// before, and fails if the cost grows faster than the input.
//
//	make test-slope
//
// Built with -cover, it counts how often each block of the Go code runs, of lbd and of the packages that read
// for it, and the bytes that are allocated: figures that no other load on the machine changes. Built without, it
// measures the CPU time, which also shows what is in assembly (searches and copies of bytes). That cannot be as
// strict: the limit leaves a factor of 3.5 between linear and refused, and only what exceeds it in each of three
// attempts fails. Other load takes no CPU time of this process, and what it costs in caches is far less.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/coverage"
	"strings"
	"syscall"
)

const (
	// maxSlope is the limit of counted figures: n·log n has about 1.07.
	maxSlope = 1.2
	// maxTimeSlope is the limit of CPU time, from the smallest size to the largest. What is quadratic has 2.
	maxTimeSlope = 1.6
	runs         = 2 // of which the least CPU time counts
	attempts     = 3 // after which a CPU time is too steep
)

// cost is what an input of a size costs.
type cost struct{ size, steps, bytes, time float64 }

func main() {
	var failed int
	counts := coverage.ClearCounters() == nil
	only := strings.Join(os.Args[1:], " ")
	fmt.Printf("%-44s %9s %12s %12s %10s  %s\n", "input", "size", "steps", "allocated", "CPU ms", "slopes")
	for _, in := range inputs() {
		if !strings.Contains(in.name, only) {
			continue
		}
		var line string
		bad := true
		for attempt := 0; bad && (attempt == 0 || !counts && attempt < attempts); attempt++ {
			costs := make([]cost, 4)
			for i := range costs {
				body := in.body(in.n << i)
				costs[i] = measure(body, in.read, counts)
			}
			line, bad = judge(in.name, costs, counts)
		}
		fmt.Println(line)
		if bad {
			failed++
		}
	}
	if failed > 0 {
		fmt.Printf("%d inputs cost more than in proportion to their size\n", failed)
		os.Exit(1)
	}
}

// judge returns a line of the table, and whether a slope is too steep.
func judge(name string, costs []cost, counts bool) (line string, bad bool) {
	first, last := costs[0], costs[3]
	steep := func(of func(cost) float64) float64 {
		return math.Log(of(last)/of(first)) / math.Log(last.size/first.size)
	}
	steps, allocated := steep(func(c cost) float64 { return c.steps + 1 }), steep(func(c cost) float64 { return c.bytes + 1<<16 })
	time := steep(func(c cost) float64 { return c.time + 1e-3 })
	line = fmt.Sprintf("%-44s %9.0f %12.0f %12.0f %10.1f  %.2f %.2f %.2f", name, last.size, last.steps, last.bytes, 1e3*last.time, steps, allocated, time)
	if bad = max(steps, allocated) > maxSlope || !counts && time > maxTimeSlope; bad {
		line += "  TOO STEEP"
	}
	return line, bad
}

// measure calls read once for what only the first call does, and then measures it.
func measure(body []byte, read func([]byte), counts bool) cost {
	read(body)
	c := cost{size: float64(len(body))}
	for i := range runs {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if counts {
			_ = coverage.ClearCounters() // it succeeded before
		}
		begin := used()
		read(body)
		took := used() - begin
		if counts {
			c.steps = counted()
		}
		runtime.ReadMemStats(&after)
		if c.bytes = float64(after.TotalAlloc - before.TotalAlloc); i == 0 || took < c.time {
			c.time = took
		}
		if counts {
			break
		}
	}
	return c
}

// used returns the seconds of CPU time that the process has used.
func used() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// counted returns the sum of all counters of blocks.
func counted() float64 {
	var b bytes.Buffer
	if err := coverage.WriteCounters(&b); err != nil {
		panic(err)
	}
	sum, err := sumOf(b.Bytes())
	if err != nil {
		panic(err)
	}
	return sum
}

// Sizes of Go's file of counters: a header; a segment with its own header, strings and arguments, and for each
// function the number of its counters, package, function and the counters, as uvarints; and a footer.
const (
	fileHeader    = 32
	segmentHeader = 16
	uvarints      = 2 // the flavor of the counters, at its place in the header
	flavorAt      = 24
)

func sumOf(b []byte) (sum float64, err error) {
	if len(b) < fileHeader+segmentHeader || b[flavorAt] != uvarints {
		return 0, errors.New("the counters are not in the form that this program knows")
	}
	b = b[fileHeader:]
	functions := binary.LittleEndian.Uint64(b)
	skip := segmentHeader + int(binary.LittleEndian.Uint32(b[8:])) + int(binary.LittleEndian.Uint32(b[12:]))
	b = b[skip:]
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[max(n, 1):]
		return v
	}
	for range functions {
		counters := next()
		next()
		next()
		for range counters {
			sum += float64(next())
		}
	}
	return sum, nil
}
