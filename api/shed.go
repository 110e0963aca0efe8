package api

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
)

const (
	// ShedRetry is the minimum time after which clients reconnect whose stream was ended because
	// of overload. The maximum is twice as long, so that they do not come back at once.
	ShedRetry = 5 * time.Second
	// MaxShedStreams is the maximum number of streams that one call of [Shedding.EndStreams] ends.
	MaxShedStreams = 500
)

// Shedding rejects, and ends, work while lbd is overloaded, and counts it. A nil *Shedding sheds
// nothing. It is safe for concurrent use.
type Shedding struct {
	sheds    func(overload.Level) bool
	memory   *overload.MemoryBudget                 // may be nil
	rejected [overload.ShedLeases + 1]atomic.Uint64 // by level
	ended    atomic.Uint64

	mu   sync.Mutex // guards the rest
	open map[*shedStream]struct{}
}

// NewShedding returns a Shedding. sheds reports whether the work of a level is shed now. memory is what requests may
// take; nil for no limit.
func NewShedding(sheds func(overload.Level) bool, memory *overload.MemoryBudget) *Shedding {
	return &Shedding{sheds: sheds, memory: memory, open: make(map[*shedStream]struct{})}
}

// budget returns the memory that requests may take; nil for no limit.
func (s *Shedding) budget() *overload.MemoryBudget {
	if s == nil {
		return nil
	}
	return s.memory
}

// rejects returns an error if a request, which is the work of a level, must be rejected.
func (s *Shedding) rejects(l overload.Level) error {
	if s == nil || !s.sheds(l) {
		return nil
	}
	s.rejected[l].Add(1)
	return shedProblem(l, retryAfter)
}

// shedStream is an open stream, or a long poll, of a caller without identity. The methods of a nil *shedStream,
// which is any other stream, do nothing.
type shedStream struct {
	shedding *Shedding
	end      func()
	ended    atomic.Bool
}

// add adds an open stream. end is called at most once, and must not block. The caller calls leave
// when the stream has ended.
func (s *Shedding) add(c *access.Caller, end func()) *shedStream {
	if s == nil || c.Name != "" {
		return nil
	}
	stream := &shedStream{shedding: s, end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[stream] = struct{}{}
	return stream
}

func (s *shedStream) leave() {
	if s == nil {
		return
	}
	s.shedding.mu.Lock()
	defer s.shedding.mu.Unlock()
	delete(s.shedding.open, s)
}

// isEnded reports whether the stream was ended because of overload.
func (s *shedStream) isEnded() bool { return s != nil && s.ended.Load() }

// retry returns the field that makes a client reconnect later, if the stream was ended because of
// overload; otherwise an empty text.
func (s *shedStream) retry() string {
	if !s.isEnded() {
		return ""
	}
	return "retry: " + strconv.FormatInt(shedRetry().Milliseconds(), 10) + "\n\n"
}

// shedRetry returns the time after which the client of a stream that was ended reconnects.
func shedRetry() time.Duration { return ShedRetry + rand.N(ShedRetry) }

// EndStreams ends open streams and long polls of callers without identity if they are shed now: at most
// [MaxShedStreams], so that the work of one call is bounded. It returns how many.
func (s *Shedding) EndStreams() (n int) {
	if !s.sheds(overload.ShedStreams) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.open {
		if n == MaxShedStreams {
			break
		}
		delete(s.open, stream)
		stream.ended.Store(true)
		stream.end()
		n++
	}
	s.ended.Add(uint64(n))
	return n
}

var (
	shedDesc = prometheus.NewDesc("lbd_shed_total",
		"Work shed because lbd was overloaded: requests rejected (streams, snapshots, pushes, leases; memory: any that would take more than is left), resources of sources that had to wait for memory (sources), and streams and long polls ended (open_streams).", []string{"work"}, nil)
	reservedDesc = prometheus.NewDesc("lbd_reserved_bytes", "Memory that requests have reserved for their bodies, for computing their answers, and for answers that are not yet written.", nil, nil)
)

var shedWork = map[overload.Level]string{
	overload.ShedStreams: "streams", overload.ShedSnapshots: "snapshots", overload.ShedPushes: "pushes", overload.ShedLeases: "leases",
}

// Describe sends the descriptors of the metrics. It is for prometheus.Collector.
func (*Shedding) Describe(ch chan<- *prometheus.Desc) {
	ch <- shedDesc
	ch <- reservedDesc
}

// Collect sends the metrics. It is for prometheus.Collector.
func (s *Shedding) Collect(ch chan<- prometheus.Metric) {
	for level, work := range shedWork {
		ch <- prometheus.MustNewConstMetric(shedDesc, prometheus.CounterValue, float64(s.rejected[level].Load()), work)
	}
	ch <- prometheus.MustNewConstMetric(shedDesc, prometheus.CounterValue, float64(s.ended.Load()), "open_streams")
	bytes, requests, sources := s.memory.Reserved()
	ch <- prometheus.MustNewConstMetric(shedDesc, prometheus.CounterValue, float64(requests), "memory")
	ch <- prometheus.MustNewConstMetric(shedDesc, prometheus.CounterValue, float64(sources), "sources")
	ch <- prometheus.MustNewConstMetric(reservedDesc, prometheus.GaugeValue, float64(bytes))
}
