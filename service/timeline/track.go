package timeline

import (
	"encoding/binary"
	"errors"
	"slices"
)

const (
	// maxChunkBytes seals a chunk that has as many bytes.
	maxChunkBytes = 448
	// chunkOverhead is what a chunk costs beside its data.
	chunkOverhead = 64
	// chunksOfTrack is how many chunks a quiet track has: it loses its oldest
	// samples by the chunk.
	chunksOfTrack = 6
	// maxChunkSteps is the largest number of steps in a chunk.
	maxChunkSteps = coarseSteps/chunksOfTrack + 1
)

// track has the samples of one cluster at one resolution.
type track struct {
	keep   int64   // how many steps are kept
	sealed []chunk // the oldest first
	open   chunk
	quiet  int64    // steps at the end of open that are not in its data yet
	gauges []uint64 // as open has them, by series
	bytes  int
}

// add appends the sample of a step. values are those of all series. It ignores a
// step that is not after the last one.
func (t *track) add(step int64, series []Series, values []uint64) {
	switch {
	case t.open.steps == 0:
		t.begin(step)
	case step < t.open.end():
		return
	case step-t.open.first >= t.keep/chunksOfTrack || len(t.open.data) >= maxChunkBytes:
		t.seal()
		t.begin(step)
	case step > t.open.end():
		t.write(func() { t.open.put(opGap, step-t.open.end()) })
	}
	t.gauges = append(t.gauges, make([]uint64, len(series)-len(t.gauges))...)
	n := int64(0)
	for i, s := range series {
		if t.lists(i, s, values[i]) {
			n++
		}
	}
	t.open.steps = step + 1 - t.open.first
	if n == 0 {
		t.quiet++
		return
	}
	t.write(func() {
		t.open.put(opSample, n)
		for i, s := range series {
			if t.lists(i, s, values[i]) {
				t.open.data = binary.AppendUvarint(binary.AppendUvarint(t.open.data, uint64(i)), values[i])
				t.gauges[i] = values[i]
			}
		}
	})
}

// write calls a function that appends to the open chunk, after its quiet steps.
func (t *track) write(appendTo func()) {
	before := cap(t.open.data)
	if t.quiet > 0 {
		t.open.put(opQuiet, t.quiet)
		t.quiet = 0
	}
	appendTo()
	t.bytes += cap(t.open.data) - before
}

// lists reports whether a sample has to list a value.
func (t *track) lists(i int, s Series, v uint64) bool {
	if s.Kind.isGauge() {
		return v != t.gauges[i]
	}
	return v > 0
}

func (t *track) begin(step int64) {
	t.open = chunk{first: step, data: make([]byte, 0, 64)}
	t.bytes += chunkOverhead + cap(t.open.data)
	clear(t.gauges)
	t.expire(step - t.keep)
}

func (t *track) seal() {
	t.write(func() {})
	t.bytes -= cap(t.open.data)
	t.open.data = slices.Clone(t.open.data) // without the room to grow
	t.bytes += cap(t.open.data)
	t.sealed = append(t.sealed, t.open)
	t.open = chunk{}
}

// expire removes the sealed chunks that end at a step or before it.
func (t *track) expire(step int64) {
	n := 0
	for n < len(t.sealed) && t.sealed[n].end() <= step {
		n++
	}
	t.drop(n)
}

// drop removes the n oldest sealed chunks, and returns how many bytes they had.
func (t *track) drop(n int) (freed int) {
	for _, c := range t.sealed[:n] {
		freed += chunkOverhead + cap(c.data)
	}
	t.sealed = slices.Delete(t.sealed, 0, n)
	t.bytes -= freed
	return freed
}

// chunks returns the chunks whose samples reach beyond a step. The open one is a
// copy.
func (t *track) chunks(since int64) []chunk {
	var out []chunk
	for _, c := range t.sealed {
		if c.end() > since {
			out = append(out, c)
		}
	}
	if t.open.steps > 0 && t.open.end() > since {
		open := t.open
		open.data = slices.Clone(open.data)
		if t.quiet > 0 {
			open.put(opQuiet, t.quiet)
		}
		out = append(out, open)
	}
	return out
}

// A chunk is a sequence of operations. Each begins with an unsigned varint: the
// operation in its two lowest bits, and a number n in the others.
const (
	// opGap: n steps without samples.
	opGap = iota
	// opQuiet: n steps in which no counter grew and no gauge changed.
	opQuiet
	// opSample: one step, with n pairs of varints: the index of a series, and the
	// growth of a counter or the new value of a gauge. Counters that are not
	// listed did not grow, gauges that are not listed keep their value. All gauges
	// are zero before the first sample of a chunk.
	opSample

	opBits = 2
)

// chunk has the samples of consecutive steps. A sealed chunk is never changed.
type chunk struct {
	first int64 // number of the first step
	steps int64
	data  []byte
}

// end is the number of the step after the last one.
func (c *chunk) end() int64 { return c.first + c.steps }

func (c *chunk) put(op, n int64) {
	c.data = binary.AppendUvarint(c.data, uint64(n)<<opBits|uint64(op))
}

var errCorrupt = errors.New("timeline: chunk is corrupt")

// decode calls yield for each sample of the chunk, in order of time, up to the first
// invalid operation. values has the values of all series, and is reused.
func (c *chunk) decode(series []Series, yield func(step int64, values []uint64)) error {
	values := make([]uint64, len(series))
	at, data := c.first, c.data
	for len(data) > 0 {
		head, rest, ok := uvarint(data)
		n := int64(head >> opBits)
		if !ok || n > maxChunkSteps {
			return errCorrupt
		}
		data = rest
		for i, s := range series {
			if !s.Kind.isGauge() {
				values[i] = 0
			}
		}
		switch head & (1<<opBits - 1) {
		case opGap:
			at += n
		case opQuiet:
			for ; n > 0; n-- {
				yield(at, values)
				at++
			}
		case opSample:
			if data, ok = pairs(data, n, values); !ok {
				return errCorrupt
			}
			yield(at, values)
			at++
		default:
			return errCorrupt
		}
		if at > c.end() {
			return errCorrupt
		}
	}
	return nil
}

func pairs(data []byte, n int64, values []uint64) (rest []byte, ok bool) {
	for ; n > 0; n-- {
		var i, v uint64
		if i, data, ok = uvarint(data); !ok || i >= uint64(len(values)) {
			return nil, false
		}
		if v, data, ok = uvarint(data); !ok {
			return nil, false
		}
		values[i] = v
	}
	return data, true
}

func uvarint(data []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(data)
	if n <= 0 {
		return 0, nil, false
	}
	return v, data[n:], true
}
