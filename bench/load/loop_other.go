//go:build !linux

package load

import "errors"

func run(Spec) (Result, error) { return Result{}, errors.New("the load generator needs Linux") }
