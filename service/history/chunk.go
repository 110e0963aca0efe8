package history

import (
	"encoding/binary"
	"errors"
)

// A chunk is a sequence of operations. Each begins with an unsigned varint: the
// operation in its two lowest bits, and a number n in the others.
const (
	// opGap: nothing is known of n steps.
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

var errCorrupt = errors.New("history: chunk is corrupt")

// decode calls yield for each sample of the chunk, in order of time. values has
// the values of all series, and is reused. Of a chunk that breaks the format,
// yield receives the samples up to there.
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

// pairs reads n pairs of an index and a value into values.
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
