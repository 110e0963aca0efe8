package picks

import (
	"encoding/base32"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawID(t *rapid.T) LeaseID {
	return LeaseID{
		rapid.Uint8().Draw(t, "shard"), rapid.Uint32().Draw(t, "slot"), rapid.Uint32().Draw(t, "generation"),
		[2]uint64{rapid.Uint64().Draw(t, "first"), rapid.Uint64().Draw(t, "second")},
	}
}

// Texts have the form of base32 with the extended hex alphabet, and the order of the IDs.
func TestLeaseIDTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, other := drawID(t), drawID(t)
		text := id.String()
		raw, err := base32.HexEncoding.DecodeString(text)
		if err != nil || len(text) != LeaseIDLength || raw[0] != id.shard {
			t.Fatalf("%s: %v", text, err)
		}
		if back, ok := ParseLeaseID(text); !ok || back != id || id.Compare(back) != 0 {
			t.Fatalf("%s is read as %+v; want %+v", text, back, id)
		}
		if got, want := id.Compare(other), strings.Compare(text, other.String()); got != want {
			t.Fatalf("%s and %s: %d; want %d", text, other, got, want)
		}
		encoded, err := json.Marshal(id)
		if err != nil || string(encoded) != `"`+text+`"` {
			t.Fatalf("%s: %v", encoded, err)
		}
		var decoded LeaseID
		if err := json.Unmarshal(encoded, &decoded); err != nil || decoded != id {
			t.Fatalf("%s: %v, %v", encoded, decoded, err)
		}
	})
}

// FuzzParseLeaseID: only the text of an ID is read, and never two texts as the same ID.
func FuzzParseLeaseID(f *testing.F) {
	for _, seed := range []string{
		"", "nonsense", strings.Repeat("0", LeaseIDLength), strings.Repeat("V", LeaseIDLength), strings.Repeat("v", LeaseIDLength),
		strings.Repeat("W", LeaseIDLength), strings.Repeat("0", LeaseIDLength-1) + "=", strings.Repeat("0", LeaseIDLength+1), strings.Repeat("€", 10) + "0123456789",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := ParseLeaseID(text)
		valid := len(text) == LeaseIDLength && strings.Trim(text, idDigits) == ""
		if ok != valid || !ok && id != (LeaseID{}) || ok && id.String() != text {
			t.Errorf("%q is read as %v, %v", text, id, ok)
		}
		if again, same := ParseLeaseID([]byte(text)); same != ok || again != id {
			t.Errorf("%q is read as %v from bytes", text, again)
		}
	})
}

func TestUnmarshalBadLeaseID(t *testing.T) {
	id := LeaseID{slot: 1}
	if err := id.UnmarshalText([]byte("x")); err == nil || id.slot != 1 {
		t.Errorf("%v, %v", id, err)
	}
}
