package overload

import (
	"os"
	"runtime"
)

const (
	// spareProcessors is how many more processors than CPUs the Go runtime gets.
	spareProcessors = 2
	// minProcessors is the minimum that it gets. With fewer, the garbage collector runs on all of
	// them in turns, of up to 10 ms each; with more, on one of four.
	minProcessors = 4
)

// cpus is what CPUs returns. The runtime has set it before main.
var cpus = runtime.GOMAXPROCS(0)

// CPUs returns how many CPUs lbd may use: GOMAXPROCS at the start of the process.
func CPUs() int { return cpus }

// AddProcessors lets the Go runtime run more goroutines at a time than there are CPUs.
//
// A goroutine that returns from a system call, such as that of an event loop, needs a processor of the
// runtime. If bulk work and the garbage collector have all of them, it waits until one of them ends, or
// for 10 ms. With processors to spare, its thread competes with theirs for a CPU instead, and the system
// lets a thread that has slept run soon.
//
// It changes nothing if the CPUs of the process are limited, by GOMAXPROCS or by a quota of its
// container: more threads would use up the quota sooner, and then none of them would run.
func AddProcessors() {
	if n := processors(cpus, runtime.NumCPU(), os.Getenv("GOMAXPROCS") != ""); n > cpus {
		runtime.GOMAXPROCS(n)
	}
}

// processors returns the number of processors for usable of all CPUs. fixed says that the operator has
// set it.
func processors(usable, all int, fixed bool) int {
	if fixed || usable < all {
		return usable
	}
	return max(minProcessors, usable+spareProcessors)
}
