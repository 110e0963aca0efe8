package resolver

import (
	"errors"
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// layers has the resources of all sources. Those of management servers are separate for each
// target, which may fall back to another server (gRFC A71).
type layers struct {
	shared map[resource.Key]*sources
	ads    map[targetResource]*result
	// base has what these maps do not have; nil for none. It is not changed.
	base *layers
}

// at returns the results of a resource, which must not be changed; nil if there are none.
func (l *layers) at(key resource.Key) *sources {
	for ; l != nil; l = l.base {
		if at, ok := l.shared[key]; ok {
			return at
		}
	}
	return nil
}

// server returns the result of a management server for a target; nil if there is none.
func (l *layers) server(w targetResource) *result {
	for ; l != nil; l = l.base {
		if is, ok := l.ads[w]; ok {
			return is
		}
	}
	return nil
}

// sources has the results of one resource. SourceADS is not used.
type sources [len(resource.Sources)]*result

// result is the last update of a resource from a source, as in [resource.Update]: the value, or
// Err. With both, the value is the last good one. The zero result is an unknown resource.
type result struct {
	resource.Value

	Err      error
	errSince time.Time // first time with the current text of Err
	Server   string
	Version  string
	Updated  time.Time
	Fallback bool
	Final    bool
	rejected bool // a file has an invalid version of the resource
	source   resource.Source
}

var unknown result

// notFound reports whether the resource does not exist for gRPC.
func (r *result) notFound() bool {
	err, ok := errors.AsType[*client.ResourceError](r.Err)
	return ok && err.NotFound()
}

func (r *result) good() bool { return r != nil && r.Value != resource.Value{} }

func (r *result) known() bool { return r.good() || r.Err != nil }

func (r *result) from() resource.Provenance {
	return resource.Provenance{Source: r.source, Updated: r.Updated, Version: r.Version}
}

// top returns the result in use for a target, which must not be changed. A push, then a file, take precedence, also
// without a value; but a rejected resource of a file counts only if no other source has a
// value. The cached version is used until the server sends a value, or an error that is
// final and not of a fallback server.
func (l *layers) top(target string, key resource.Key) *result {
	at, ads := l.at(key), l.server(targetResource{target, key})
	if at == nil {
		at = &sources{}
	}
	hand := at.byHand(0)
	if hand != nil && !hand.rejected {
		return hand
	}
	if is := served(ads, at[resource.SourceCache]); hand == nil || is.good() {
		return is
	}
	return hand
}

// byHand returns the first result of a source that people write, beginning with from: one that is not rejected, or
// else a rejected one. It is nil if there is none, also of nil.
func (at *sources) byHand(from resource.Source) (first *result) {
	if at == nil {
		return nil
	}
	for s := from; int(s) < len(at) && s.ByHand(); s++ {
		switch is := at[s]; {
		case is == nil:
		case !is.rejected:
			return is
		case first == nil:
			first = is
		}
	}
	return first
}

// served returns the result in use of a management server and the cache.
func served(ads, cache *result) *result {
	switch {
	case ads != nil && (ads.good() || !ads.Fallback && ads.Final || !cache.good()):
		return ads
	case !cache.good():
		return &unknown
	case ads == nil:
		return cache
	}
	is := *cache
	is.Err, is.errSince = ads.Err, ads.errSince
	return &is
}

// covered reports whether a push, or a file that is not rejected, has the resource.
func (l *layers) covered(key resource.Key) bool {
	is := l.at(key).byHand(0)
	return is != nil && !is.rejected
}

// byHand reports whether a push or a file has the resource, or a file an invalid version of it.
func (l *layers) byHand(key resource.Key) bool { return l.at(key).byHand(0) != nil }

// get returns the result of a source. Only SourceADS uses target.
func (l *layers) get(s resource.Source, target string, key resource.Key) *result {
	if s == resource.SourceADS {
		return l.server(targetResource{target, key})
	}
	if at := l.at(key); at != nil {
		return at[s]
	}
	return nil
}

// put replaces the result of a source; nil removes it.
func (l *layers) put(s resource.Source, target string, key resource.Key, r *result) {
	if s == resource.SourceADS {
		if l.ads[targetResource{target, key}] = r; r == nil {
			delete(l.ads, targetResource{target, key})
		}
		return
	}
	at := l.shared[key]
	if at == nil {
		at = &sources{}
		if is := l.base.at(key); is != nil {
			*at = *is
		}
		l.shared[key] = at
	}
	if at[s] = r; *at == (sources{}) && l.base == nil {
		delete(l.shared, key)
	}
}

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
