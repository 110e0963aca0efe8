package resolver

import (
	"errors"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// layers holds what the sources say of the resources of one type, by name.
type layers[V any] map[string]*[len(resource.Sources)]*result[V]

// result is a resource as a value, or why it is none. The zero result is of a
// resource of which nothing is known.
type result[V any] struct {
	value *V
	// err is, without a value, why there is none: what an older lbd stored may
	// break a rule of this one, or a management server may have said so. With
	// a value it is why the last good one is in use.
	err  error
	from resource.Provenance
}

// notFound reports whether err is that the resource does not exist, as far as
// gRPC would know.
func (r *result[V]) notFound() bool {
	_, silent := errors.AsType[*client.SilentError](r.err)
	return silent || r.gone()
}

// gone reports whether a server has said that the resource does not exist.
func (r *result[V]) gone() bool {
	_, is := errors.AsType[*client.NotFoundError](r.err)
	return is
}

func (r *result[V]) good() bool { return r != nil && r.value != nil }

// top is what counts of what the sources say. What push or file have covers the
// rest, even where it is no value. What was kept of a management server serves
// until the server says otherwise: an error other than that the resource does
// not exist does not.
func (l layers[V]) top(name string) result[V] {
	at := l[name]
	if at == nil {
		return result[V]{}
	}
	ads, cache := at[resource.SourceADS], at[resource.SourceCache]
	switch {
	case at[resource.SourcePush] != nil:
		return *at[resource.SourcePush]
	case at[resource.SourceFile] != nil:
		return *at[resource.SourceFile]
	case ads != nil && (ads.good() || ads.gone() || !cache.good()):
		return *ads
	case !cache.good():
		return result[V]{}
	case ads != nil:
		kept := *cache
		kept.err = ads.err
		return kept
	default:
		return *cache
	}
}

// covered reports whether push or file have the resource, be it one that cannot
// be used.
func (l layers[V]) covered(name string) bool {
	at := l[name]
	return at != nil && (at[resource.SourcePush] != nil || at[resource.SourceFile] != nil)
}

// put replaces what a source says; nil is nothing.
func (l layers[V]) put(name string, s resource.Source, r *result[V]) {
	at := l[name]
	if at == nil {
		if r == nil {
			return
		}
		at = new([len(resource.Sources)]*result[V])
		l[name] = at
	}
	at[s] = r
	if *at == [len(resource.Sources)]*result[V]{} {
		delete(l, name)
	}
}

// take puts what an update says. value is the update's own, or nil.
func (l layers[V]) take(
	s resource.Source, u Update, value *V, o resource.Options,
	decode func([]byte, resource.Options) (*resource.Decoded[*V], error),
) {
	name := u.Key.Name
	is := &result[V]{value: value, from: resource.Provenance{Source: s, Updated: u.Updated, Version: u.Version}}
	switch {
	case u.Raw != nil && value == nil:
		d, err := decode(u.Raw, o)
		if is.err = err; err == nil {
			is.value = d.Value
		}
	case u.Raw != nil:
	case u.Err == nil:
		is = nil
	default:
		var was *result[V]
		if at := l[name]; at != nil {
			was = at[s]
		}
		if u.Ambient && was.good() {
			*is = *was
		}
		is.err = u.Err
	}
	l.put(name, s, is)
}
