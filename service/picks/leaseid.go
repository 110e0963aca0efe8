package picks

import (
	"cmp"
	"encoding/base32"
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// LeaseIDLength is the length of the text of a [LeaseID].
const LeaseIDLength = 40

// LeaseID identifies a lease. It has the place of the lease in memory, a number that changes
// with each use of the place, and 128 random bits, so that a caller cannot guess the ID of
// another one's lease. In a fleet, 40 of these bits are the [ReplicaTag] instead. Its text has [LeaseIDLength] digits and capital letters, in the order
// of the IDs. The zero LeaseID is that of no lease.
type LeaseID struct {
	shard      uint8
	slot       uint32
	generation uint32
	secret     [2]uint64
}

// ReplicaTag identifies the replica of a fleet that has granted a lease; 0 is that of a daemon without
// a fleet.
type ReplicaTag uint64

// tagShift is the number of random bits beside a ReplicaTag.
const tagShift = 24

// TagOf returns the tag of the replica with an ID; 0 for an empty one. Two of a thousand replicas have the same with a
// probability of 1 in 2 millions: the leases of one are not found through the other then.
func TagOf(replica string) ReplicaTag {
	if replica == "" {
		return 0
	}
	return max(1, ReplicaTag(xxhash.Sum64String(replica)>>tagShift))
}

// Replica returns the tag of the replica that has granted the lease, if all daemons belong to a fleet.
func (id LeaseID) Replica() ReplicaTag { return ReplicaTag(id.secret[0] >> tagShift) }

// idSize is the number of bytes of an ID: every 5 of them are 8 digits.
const idSize = LeaseIDLength / 8 * 5

// idDigits are those of base32 with the extended hex alphabet, whose order is that of the values
// (RFC 4648, section 7).
const idDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUV"

// notADigit is the value of other characters.
const notADigit = 0xff

var digitValues = func() (values [256]uint8) {
	for i := range values {
		values[i] = notADigit
	}
	for i := range len(idDigits) {
		values[idDigits[i]] = uint8(i)
	}
	return values
}()

// ParseLeaseID returns the ID of a text, and reports whether it is that of an ID. Unlike encoding/base32, it allocates
// nothing, and accepts no line breaks.
func ParseLeaseID[Text string | []byte](text Text) (id LeaseID, ok bool) {
	if len(text) != LeaseIDLength {
		return LeaseID{}, false
	}
	var b [idSize + 3]byte // the last 8 bytes are written at once
	bad := uint8(0)
	for i := range LeaseIDLength / 8 {
		group := uint64(0)
		for j := range 8 {
			v := digitValues[text[8*i+j]]
			bad |= v
			group = group<<5 | uint64(v&31)
		}
		binary.BigEndian.PutUint64(b[5*i:], group<<24)
	}
	if bad > 31 {
		return LeaseID{}, false
	}
	return LeaseID{
		shard: b[0], slot: binary.BigEndian.Uint32(b[1:]), generation: binary.BigEndian.Uint32(b[5:]),
		secret: [2]uint64{binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint64(b[17:])},
	}, true
}

// AppendText appends the text to b. The error is nil.
func (id LeaseID) AppendText(b []byte) ([]byte, error) {
	var raw [idSize]byte
	raw[0] = id.shard
	binary.BigEndian.PutUint32(raw[1:], id.slot)
	binary.BigEndian.PutUint32(raw[5:], id.generation)
	binary.BigEndian.PutUint64(raw[9:], id.secret[0])
	binary.BigEndian.PutUint64(raw[17:], id.secret[1])
	return base32.HexEncoding.AppendEncode(b, raw[:]), nil
}

// MarshalText returns the text. The error is nil.
func (id LeaseID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText sets id to that of a text.
func (id *LeaseID) UnmarshalText(text []byte) error {
	parsed, ok := ParseLeaseID(text)
	if !ok {
		return errors.New("not the ID of a lease")
	}
	*id = parsed
	return nil
}

// String returns the text.
func (id LeaseID) String() string {
	text, _ := id.AppendText(make([]byte, 0, LeaseIDLength)) // without an error
	return string(text)
}

// IsZero reports whether id is that of no lease.
func (id LeaseID) IsZero() bool { return id == LeaseID{} }

// Compare compares IDs in the order of their texts.
func (id LeaseID) Compare(other LeaseID) int {
	return cmp.Or(
		cmp.Compare(id.shard, other.shard), cmp.Compare(id.slot, other.slot), cmp.Compare(id.generation, other.generation),
		cmp.Compare(id.secret[0], other.secret[0]), cmp.Compare(id.secret[1], other.secret[1]))
}
