package decode

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

func TestAPanicIsARefusal(t *testing.T) {
	read := func() (err error) {
		defer rejectPanic(resource.Key{Type: resource.TypeCluster, Name: "orders"}, &err)
		panic("a fault of the decoder")
	}
	err := read()
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Problems[0].Resource != "Cluster/orders" {
		t.Errorf("err = %v", err)
	}
}

func TestAPanicInABundleHidesNoOtherProblem(t *testing.T) {
	d := bundling{bundle: &Bundle{}, places: map[resource.Key]string{}}
	reading := func(read func(proto.Message) error) func(*report, *resource.Item) error {
		return func(r *report, it *resource.Item) error { return decodeItem(r, it, read) }
	}
	fail := reading(func(proto.Message) error { panic("a fault of the decoder") })
	empty := reading(func(proto.Message) error { return nil })
	noError(t, errors.Join(d.item("resources[0]", resource.Key{Type: resource.TypeCluster, Name: "a"}, fail), d.item("resources[1]", resource.Key{Type: resource.TypeAssignment, Name: ""}, empty)))
	got := d.problems.of(resource.Key{Type: typeBundle})
	if len(got) != 2 || got[0].Resource != "Cluster/a" || got[0].Field != "resources[0]" || got[1].Field != "resources[1].cluster_name" {
		t.Errorf("problems %+v", got)
	}
}
