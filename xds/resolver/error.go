package resolver

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// NotFoundError is that a resource does not exist: the Listener or the
// RouteConfiguration of a target, as the Err of its Config, or a Cluster, as the
// Err of its ClusterConfig.
type NotFoundError struct {
	Key resource.Key
	// Err is what the management server said of it, a *client.NotFoundError, or a
	// *client.SilentError where it said nothing; nil where there is none to ask.
	Err error
}

func (e *NotFoundError) Error() string {
	if e.Err != nil {
		return e.Err.Error() // which names it
	}
	return fmt.Sprintf("%s is not known", e.Key)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// unusable says why a resource that has no value cannot be used.
func unusable[V any](key resource.Key, r result[V]) error {
	if r.notFound() {
		return &NotFoundError{Key: key, Err: r.err}
	}
	return fmt.Errorf("%s cannot be used: %w", key, r.err)
}
