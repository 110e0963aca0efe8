package decode

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// rules are the options with which the decoders are compared.
var rules = []Options{
	{Format: FormatProtobuf, Name: "orders"},
	{Format: FormatProtobuf},
	{Format: FormatProtobuf, Name: "orders", Stored: true},
	{Format: FormatProtobuf, Origin: FromServer},
}

// compareDecoders decodes a ClusterLoadAssignment with both decoders, and fails if their
// results differ. It returns the result, or nil if they reject it.
func compareDecoders(t *testing.T, body []byte, o Options) *Decoded {
	t.Helper()
	sent := string(body)
	got, err := One(resource.TypeAssignment, body, o)
	if string(body) != sent {
		t.Fatalf("%q was changed", sent)
	}
	o.reflective = true
	want, wantErr := One(resource.TypeAssignment, body, o)
	if o.Stored && got != nil && want != nil {
		want.Shareable = got.Shareable
	}
	if !reflect.DeepEqual(outcome{got, err}, outcome{want, wantErr}) {
		t.Fatalf("%q with %+v:\none pass:   %+v, %v\nreflective: %+v, %v", body, o, got, err, want, wantErr)
	}
	return got
}

// outcome is what a decoder returns.
type outcome struct{ value, err any }

// compareResources is compareDecoders for a resource of a management server.
func compareResources(t *testing.T, body []byte, o Options) {
	t.Helper()
	got, err := Resource(resource.TypeAssignment, carry(body), o)
	o.reflective = true
	want, wantErr := Resource(resource.TypeAssignment, carry(body), o)
	if !reflect.DeepEqual(outcome{got, err}, outcome{want, wantErr}) {
		t.Fatalf("%q as a resource with %+v:\none pass:   %+v, %v\nreflective: %+v, %v", body, o, got, err, want, wantErr)
	}
}

// compareVersions compares the decoders on two versions of an assignment, the later one
// also with the earlier one as the previous version.
func compareVersions(t *testing.T, before, after []byte, o Options) {
	t.Helper()
	d := compareDecoders(t, before, o)
	compareDecoders(t, after, o)
	if o.Origin == FromServer && o.Format == FormatProtobuf {
		compareResources(t, after, o)
	}
	if d == nil {
		return
	}
	o.Previous = func(resource.Key) resource.Item { return d.Item }
	compareDecoders(t, after, o)
	compareDecoders(t, before, o)
}

// compareSeries compares the decoders on some changes of an assignment, one after the other.
func compareSeries(t *testing.T, body []byte, seed uint64) {
	t.Helper()
	m := mutation{rand.New(rand.NewPCG(seed, 0))}
	o := rules[m.IntN(len(rules))]
	for range 1 + m.IntN(3) {
		changed := m.change(body)
		compareVersions(t, body, changed, o)
		body = changed
	}
}

func carry(body []byte) *anypb.Any {
	return &anypb.Any{TypeUrl: resource.TypeAssignment.URL(), Value: body}
}

func FuzzOnePass(f *testing.F) {
	for i, c := range ordinary(f) {
		for seed := range uint64(4) {
			f.Add(c.body, 4*uint64(i)+seed)
		}
	}
	f.Fuzz(compareSeries)
}
