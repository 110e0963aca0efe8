package service

import (
	"context"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// sampleInterval is the interval in which changes of shares are noticed.
	sampleInterval = 10 * time.Second
	// sampleAge is half of the maximum age of a sample.
	sampleAge = 150 * time.Second
)

// pickSamples counts how many picks each locality of a cluster has got since its shares changed, for at
// most 5 min: it remembers the counters of a moment since which the cluster has had the same picker.
type pickSamples struct {
	ledger *ledger.Ledger // fixed after build

	mu          sync.Mutex // guards the rest
	last, spare map[*ledger.Record]sample
}

// sample has the counters of at most two moments with the same picker.
type sample struct {
	generation   int64
	older, newer *placeCounts
}

type placeCounts struct {
	at    time.Time
	picks map[doctor.Place]uint64
}

func newPickSamples(l *ledger.Ledger) *pickSamples {
	return &pickSamples{ledger: l, last: make(map[*ledger.Record]sample), spare: make(map[*ledger.Record]sample)}
}

// run takes samples until ctx ends.
func (p *pickSamples) run(ctx context.Context) {
	ticks := time.NewTicker(sampleInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			p.take(time.Now())
		}
	}
}

// take replaces the samples of clusters whose picker is another one.
func (p *pickSamples) take(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.ledger.Hosted().All() {
		generation := t.Channel.Generation()
		for _, m := range t.View().Clusters.All() {
			m.SampleUnhashed(now)
			s, ok := p.last[m.Record]
			if ok && s.generation == generation && now.Sub(s.newer.at) < sampleAge {
				p.spare[m.Record] = s
				continue
			}
			counts := countPlaces(m, now)
			if len(counts.picks) < 2 || t.Channel.Generation() != generation {
				continue
			}
			if !ok || s.generation != generation {
				s = sample{generation: generation}
			}
			s.older, s.newer = s.newer, counts
			p.spare[m.Record] = s
		}
	}
	p.last, p.spare = p.spare, p.last
	clear(p.spare)
}

func countPlaces(m *ledger.Cluster, now time.Time) *placeCounts {
	out := &placeCounts{at: now, picks: make(map[doctor.Place]uint64)}
	m.Places.Each(func(priority int, l resource.Locality, n uint64) {
		out.picks[doctor.Place{Priority: priority, Locality: observe.Locality(l)}] = n
	})
	return out
}

// of returns the picks of a cluster since its last sample.
func (p *pickSamples) of(m *ledger.Cluster, now time.Time) doctor.Sample {
	p.mu.Lock()
	s, ok := p.last[m.Record]
	p.mu.Unlock()
	counts := countPlaces(m, now)
	if !ok || m.Target.Channel.Generation() != s.generation {
		return doctor.Sample{Why: "endpoints or weights changed less than 10 s ago, or there is only one locality"}
	}
	since := s.newer
	if s.older != nil {
		since = s.older
	}
	out := doctor.Sample{Since: since.at, Picks: counts.picks}
	for place, before := range since.picks {
		if n := out.Picks[place]; n >= before {
			out.Picks[place] = n - before
		}
	}
	return out
}
