package resource

import (
	"errors"
	"testing"
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
