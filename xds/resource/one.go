package resource

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// DecodeResource decodes one resource of a DiscoveryResponse, which is to be of a
// type and may be wrapped in a Resource of envoy.service.discovery.v3. Item has
// the Key, its Name as soon as that can be read, even with an error; and without
// one the value, Raw and Unapplied. The error is an *InvalidError or a *SyntaxError; a panic
// of the decoder is an *InvalidError too. Of the options Origin, Name,
// Stored, Custom and Certificates are used.
func DecodeResource(t Type, r *anypb.Any, o Options) (Item, error) {
	it := Item{Key: Key{Type: t}}
	v := o.begin(it.Key)
	err := v.one(&it, r)
	it.Key = v.key
	if err == nil {
		err = v.err()
	}
	if err != nil {
		return Item{Key: it.Key}, err
	}
	it.Unapplied = v.unappliedFields()
	return it, nil
}

// one reads and judges what an Any carries.
func (v *verdict) one(it *Item, r *anypb.Any) (err error) {
	defer refusePanic(v.key, &err)
	if r.GetTypeUrl() == wrapperURL {
		wrapper := &discoveryv3.Resource{}
		if err := unmarshal(r.GetValue(), wrapper); err != nil {
			return err
		}
		v.key.Name = wrapper.GetName()
		r = wrapper.GetResource()
	}
	if url := r.GetTypeUrl(); url != v.key.Type.URL() {
		v.refuse("@type", "is %q, where a %s is wanted (%s)", url, v.key.Type, v.key.Type.URL())
		return nil
	}
	if name := binaryName(r.GetValue()); name != "" {
		v.key.Name = name
	}
	return v.item(it, "", func(v *verdict, m proto.Message) error { return v.readMessage(r.GetValue(), m) })
}
