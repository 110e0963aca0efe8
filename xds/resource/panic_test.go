package resource

import (
	"errors"
	"testing"
)

func TestAPanicIsARefusal(t *testing.T) {
	decode := func() (err error) {
		defer refusePanic(Key{TypeCluster, "orders"}, &err)
		var list []int
		_ = list[len(list)]
		return nil
	}
	err := decode()
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Problems[0].Resource != "Cluster/orders" {
		t.Errorf("err = %v", err)
	}
}
