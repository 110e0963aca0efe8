package resource

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestAPanicIsARefusal(t *testing.T) {
	decode := func() (err error) {
		defer refusePanic(Key{TypeCluster, "orders"}, &err)
		panic("a fault of the decoder")
	}
	err := decode()
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Problems[0].Resource != "Cluster/orders" {
		t.Errorf("err = %v", err)
	}
}

func TestAPanicInABundleHidesNoOtherProblem(t *testing.T) {
	d := bundling{bundle: &Bundle{}, places: map[Key]string{}}
	fail := func(*verdict, proto.Message) error { panic("a fault of the decoder") }
	empty := func(*verdict, proto.Message) error { return nil }
	if err := errors.Join(d.item("resources[0]", Key{TypeCluster, "a"}, fail), d.item("resources[1]", Key{TypeAssignment, ""}, empty)); err != nil {
		t.Fatal(err)
	}
	got := d.problems.ofBundle()
	if len(got) != 2 || got[0].Resource != "Cluster/a" || got[0].Field != "resources[0]" || got[1].Field != "resources[1].cluster_name" {
		t.Errorf("problems %+v", got)
	}
}
