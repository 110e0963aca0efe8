package resolver

import (
	"errors"
	"iter"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// layers has the resources of one type, of all sources. Those of management servers are
// separate for each target, which may fall back to another server (gRFC A71).
type layers[V any] struct {
	shared map[string]*[len(resource.Sources)]*result[V] // by name; SourceADS is not used
	ads    map[wanted]*result[V]
}

// anyLayers are the methods of layers that do not depend on the type of values.
type anyLayers interface {
	covered(name string) bool
	fails(target, name string) bool
	ambientError(target string, key resource.Key) (e AmbientError, ok bool)
	kept(name string) (server string, ok bool)
	names(s resource.Source) iter.Seq[string]
}

// layers returns the layers of a type; empty ones for another type.
func (r *Resolver) layers(t resource.Type) anyLayers {
	switch t {
	case resource.TypeListener:
		return r.listeners
	case resource.TypeRoutes:
		return r.routes
	case resource.TypeCluster:
		return r.clusters
	case resource.TypeAssignment:
		return r.assignments
	default:
		return &layers[struct{}]{}
	}
}

// wanted is a resource of one type that a target wants.
type wanted struct{ target, name string }

func newLayers[V any]() *layers[V] {
	return &layers[V]{shared: make(map[string]*[len(resource.Sources)]*result[V]), ads: make(map[wanted]*result[V])}
}

// result is the value of a resource, or an error. The zero result is an unknown resource.
type result[V any] struct {
	value *V
	// err is why there is no value, or, with a value, why the last good one is in use.
	err      error
	errSince time.Time // first time with the current text of err
	from     resource.Provenance
	// server, fallback and final are those of the resource.Update.
	server   string
	fallback bool
	final    bool
	rejected bool // a file has an invalid version of the resource
}

// notFound reports whether the resource does not exist for gRPC.
func (r *result[V]) notFound() bool {
	_, silent := errors.AsType[*client.SilentError](r.err)
	return silent || isNotFound(r.err)
}

// gone reports whether the cached version may not be used.
func (r *result[V]) gone() bool { return !r.fallback && r.final }

func isNotFound(err error) bool {
	_, is := errors.AsType[*client.NotFoundError](err)
	return is
}

// get returns the value; nil if there is none.
func (r *result[V]) get() *V {
	if r == nil {
		return nil
	}
	return r.value
}

func (r *result[V]) good() bool { return r != nil && r.value != nil }

// top returns the result in use for a target. A push, then a file, take precedence, also
// without a value; but a rejected resource of a file counts only if no other source has a
// value. The cached version is used until the server sends a value, or an error that is
// final and not of a fallback server.
func (l *layers[V]) top(target, name string) result[V] {
	at, ads := l.shared[name], l.ads[wanted{target, name}]
	if at == nil {
		if ads == nil {
			return result[V]{}
		}
		return *ads
	}
	file := at[resource.SourceFile]
	switch {
	case at[resource.SourcePush] != nil:
		return *at[resource.SourcePush]
	case file == nil:
		return served(ads, at[resource.SourceCache])
	case !file.rejected:
		return *file
	}
	if is := served(ads, at[resource.SourceCache]); is.value != nil {
		return is
	}
	return *file
}

// served returns the result in use of a management server and the cache.
func served[V any](ads, cache *result[V]) result[V] {
	switch {
	case ads != nil && (ads.good() || ads.gone() || !cache.good()):
		return *ads
	case !cache.good():
		return result[V]{}
	case ads != nil:
		kept := *cache
		kept.err, kept.errSince = ads.err, ads.errSince
		return kept
	default:
		return *cache
	}
}

// covered reports whether a push, or a file that is not rejected, has the resource.
func (l *layers[V]) covered(name string) bool {
	at := l.shared[name]
	return at != nil && (at[resource.SourcePush] != nil || at[resource.SourceFile] != nil && !at[resource.SourceFile].rejected)
}

// rejected reports whether a file has an invalid version of the resource.
func (l *layers[V]) rejected(name string) bool {
	at := l.shared[name]
	return at != nil && at[resource.SourceFile] != nil && at[resource.SourceFile].rejected
}

// names yields the resources that a shared source has.
func (l *layers[V]) names(s resource.Source) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, at := range l.shared {
			if at[s] != nil && !yield(name) {
				return
			}
		}
	}
}

// kept returns the server of the cached value, if there is one.
func (l *layers[V]) kept(name string) (server string, ok bool) {
	at := l.shared[name]
	if at == nil || !at[resource.SourceCache].good() {
		return "", false
	}
	return at[resource.SourceCache].server, true
}

// get returns the result of a source. Only SourceADS uses target.
func (l *layers[V]) get(s resource.Source, target, name string) *result[V] {
	if s == resource.SourceADS {
		return l.ads[wanted{target, name}]
	}
	if at := l.shared[name]; at != nil {
		return at[s]
	}
	return nil
}

// put replaces the result of a source; nil removes it.
func (l *layers[V]) put(s resource.Source, target, name string, r *result[V]) {
	if s == resource.SourceADS {
		if l.ads[wanted{target, name}] = r; r == nil {
			delete(l.ads, wanted{target, name})
		}
		return
	}
	at := l.shared[name]
	if at == nil {
		if r == nil {
			return
		}
		at = new([len(resource.Sources)]*result[V])
		l.shared[name] = at
	}
	at[s] = r
	if *at == [len(resource.Sources)]*result[V]{} {
		delete(l.shared, name)
	}
}

// take stores an update with its value, or nil to decode it.
func (l *layers[V]) take(
	s resource.Source, u resource.Update, value *V, o decode.Options,
	read func([]byte, decode.Options) (*decode.Decoded[*V], error),
) {
	name := u.Key.Name
	is := &result[V]{
		value: value, from: resource.Provenance{Source: s, Updated: u.Updated, Version: u.Version},
		server: u.Server, fallback: u.Fallback, final: u.Final,
	}
	switch {
	case u.Raw != nil && value == nil:
		d, err := read(u.Raw, o)
		if is.err = err; err == nil {
			is.value = d.Value
		}
	case u.Raw != nil:
	case u.Err == nil:
		is = nil
	default:
		was := l.get(s, u.Target, name)
		since := time.Now()
		if was != nil && text(was.err) == text(u.Err) {
			since = was.errSince
		}
		if u.Ambient && was.good() {
			*is = *was
		}
		is.err, is.errSince, is.rejected = u.Err, since, s == resource.SourceFile
	}
	l.put(s, u.Target, name, is)
}
