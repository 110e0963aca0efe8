package decode

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Resource decodes one resource of a type from a DiscoveryResponse, which may be wrapped in
// a Resource of envoy.service.discovery.v3. Item has the Key, its Name as soon as that can
// be read, even with an error; and without one the value, Raw and Unapplied. The error is
// an *InvalidError or a *SyntaxError. Of the options Origin, Name, Stored, Policies and
// Certificates are used.
func Resource(t resource.Type, a *anypb.Any, o Options) (resource.Item, error) {
	it := resource.Item{Key: resource.Key{Type: t}}
	r := o.begin(it.Key)
	err := decodeAny(r, &it, a)
	it.Key = r.key
	if err == nil {
		err = r.err()
	}
	if err != nil {
		return resource.Item{Key: it.Key}, err
	}
	it.Unapplied = r.unapplied.fields()
	return it, nil
}

func decodeAny(r *report, it *resource.Item, a *anypb.Any) (err error) {
	defer rejectPanic(r.key, &err)
	if a, r.key.Name, err = wrappedResource(a); err != nil {
		return err
	}
	if url := a.GetTypeUrl(); url != r.key.Type.URL() {
		r.reject("@type", "is %q, where a %s is wanted (%s)", url, r.key.Type, r.key.Type.URL())
		return nil
	}
	if name := binaryName(a.GetValue()); name != "" {
		r.key.Name = name
	}
	return decodeItem(r, it, func(own string) string { return own }, func(r *report, m proto.Message) error {
		return readMessage(r, a.GetValue(), m)
	})
}
