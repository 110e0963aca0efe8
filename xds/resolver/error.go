package resolver

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// NotFoundError reports a resource that does not exist: the Listener or RouteConfiguration
// of a target in the Err of its Config, or a Cluster in the Err of its ClusterConfig.
type NotFoundError struct {
	Key resource.Key
	// Err is the error of the management server, a *client.ResourceError; nil without a
	// server.
	Err error
}

func (e *NotFoundError) Error() string {
	if e.Err != nil {
		return e.Err.Error() // it names the resource
	}
	return fmt.Sprintf("%s is not known", e.Key)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

func unusable(key resource.Key, r *result) error {
	if r.notFound() {
		return &NotFoundError{Key: key, Err: r.Err}
	}
	return fmt.Errorf("%s cannot be used: %w", key, r.Err)
}
