// One goroutine reads each damaged file.

//go:build !race

package file

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// isDamaged fails unless a file is read as damaged, with everything before the damage
// intact.
func isDamaged(t *testing.T, what string, data []byte, intact map[resource.Key]string) {
	t.Helper()
	_, err := readLog(bytes.NewReader(data), int64(len(data)))
	d := damage{}
	if !errors.As(err, &d) {
		t.Fatalf("%s: got %v, want damage", what, err)
	}
	got := map[resource.Key]string{}
	if d.intact != nil {
		got = contentsOf(t, d.intact)
	}
	if !maps.Equal(got, intact) {
		t.Fatalf("%s: intact is%s, want%s", what, brief(got), brief(intact))
	}
}

func TestEveryFlippedBitIsDamage(t *testing.T) {
	sound, ends := soundFile(t)
	for at := range sound {
		for bit := range 8 {
			data := bytes.Clone(sound)
			data[at] ^= 1 << bit
			isDamaged(t, fmt.Sprintf("byte %d, bit %d", at, bit), data, upTo(ends, int64(at)))
		}
	}
}

func TestEveryTruncationIsDamage(t *testing.T) {
	sound, ends := soundFile(t)
	for size := range sound {
		isDamaged(t, fmt.Sprintf("truncated to %d", size), sound[:size], upTo(ends, int64(size)))
	}
}

func TestEveryZeroedOrRepeatedBlockIsDamage(t *testing.T) {
	sound, ends := soundFile(t)
	const block = 64
	for at := 0; at+block < len(sound); at++ {
		zeroed, other, missing := bytes.Clone(sound), bytes.Clone(sound), slices.Delete(bytes.Clone(sound), at, at+block)
		clear(zeroed[at:][:block])
		copy(other[at:][:block], sound[(at+block)%(len(sound)-block):])
		for what, data := range map[string][]byte{"zeroed": zeroed, "overwritten": other, "missing": missing} {
			first := int64(0) // difference
			for first < int64(len(data)) && data[first] == sound[first] {
				first++
			}
			isDamaged(t, fmt.Sprintf("%d bytes at %d %s", block, at, what), data, upTo(ends, first))
		}
	}
}

// A process that is killed, or a machine that loses power, leaves the header of an
// earlier commit and any part of what was written since.
func TestAnUnfinishedWriteIsCutOff(t *testing.T) {
	sound, ends := soundFile(t)
	draw := rand.New(rand.NewPCG(1, 2))
	for i, acknowledged := range ends {
		header, _ := encodeHeader(acknowledged.size)
		for size := acknowledged.size; size <= int64(len(sound)); size++ {
			data := append(bytes.Clone(header), sound[headerSize:size]...)
			check := func(what string, data []byte, want map[resource.Key]string) {
				c, err := readLog(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					t.Fatalf("%d acknowledged, %s: %v", i, what, err)
				}
				if got := contentsOf(t, c.snapshot); !maps.Equal(got, want) {
					t.Fatalf("%d acknowledged, %s: got%s, want%s", i, what, brief(got), brief(want))
				}
			}
			check(fmt.Sprintf("written to %d", size), data, upTo(ends, size))
			if size == acknowledged.size {
				continue
			}
			at := acknowledged.size + draw.Int64N(size-acknowledged.size)
			hole := bytes.Clone(data)
			clear(hole[at:])
			check(fmt.Sprintf("written to %d of %d", at, size), hole, upTo(ends, at+int64(zeros(data[at:]))))
			hole[at] ^= 0x10
			check(fmt.Sprintf("garbage from %d to %d", at, size), hole, upTo(ends, at))
		}
	}
}

// zeros is how many zero bytes b begins with.
func zeros(b []byte) int { return len(b) - len(bytes.TrimLeft(b, "\x00")) }
