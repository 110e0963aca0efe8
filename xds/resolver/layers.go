package resolver

import (
	"errors"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// layers holds what the sources say of the resources of one type. What a management
// server says is apart for each target: it may fall back to another server for one of
// them (gRFC A71). The other sources are the same for all.
type layers[V any] struct {
	shared map[string]*[len(resource.Sources)]*result[V] // by name; SourceADS is not used
	ads    map[wanted]*result[V]
}

// wanted is a resource of one type that a target wants.
type wanted struct{ target, name string }

func newLayers[V any]() layers[V] {
	return layers[V]{shared: make(map[string]*[len(resource.Sources)]*result[V]), ads: make(map[wanted]*result[V])}
}

// result is a resource as a value, or why it is none. The zero result is of a
// resource of which nothing is known.
type result[V any] struct {
	value *V
	// err is, without a value, why there is none: what an older lbd stored may
	// break a rule of this one, or a management server may have said so. With
	// a value it is why the last good one is in use.
	err error
	// errSince is when err first had its present text.
	errSince time.Time
	from     resource.Provenance
	// server is the management server that said so; fallback says that others are
	// preferred to it, and cannot be reached.
	server   string
	fallback bool
	// final is resource.Update.Final.
	final bool
	// rejected says that a file has the resource, and that it cannot be used.
	rejected bool
}

// notFound reports whether err is that the resource does not exist, as far as
// gRPC would know.
func (r *result[V]) notFound() bool {
	_, silent := errors.AsType[*client.SilentError](r.err)
	return silent || isNotFound(r.err)
}

// gone reports whether what was kept may not be used.
func (r *result[V]) gone() bool { return !r.fallback && r.final }

func isNotFound(err error) bool {
	_, is := errors.AsType[*client.NotFoundError](err)
	return is
}

// get is the value, nil for none.
func (r *result[V]) get() *V {
	if r == nil {
		return nil
	}
	return r.value
}

func (r *result[V]) good() bool { return r != nil && r.value != nil }

// top is what counts, for a target, of what the sources say. What push or file have
// covers the rest, even where it is no value; but what is rejected in a file covers
// nothing, and counts where no other source has a value. What was kept of a management server
// serves until the server sends a value: an error keeps it in use, unless the error is
// final and not of a fallback server.
func (l layers[V]) top(target, name string) result[V] {
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

// served is what counts of what a management server says and what was kept of one.
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

// covered reports whether push or file have the resource, be it one that cannot
// be used, but for one that is rejected in a file.
func (l layers[V]) covered(name string) bool {
	at := l.shared[name]
	return at != nil && (at[resource.SourcePush] != nil || at[resource.SourceFile] != nil && !at[resource.SourceFile].rejected)
}

// rejected reports whether a file has the resource, and it cannot be used.
func (l layers[V]) rejected(name string) bool {
	at := l.shared[name]
	return at != nil && at[resource.SourceFile] != nil && at[resource.SourceFile].rejected
}

// kept returns where the last known good value is from, if there is one.
func (l layers[V]) kept(name string) (server string, ok bool) {
	at := l.shared[name]
	if at == nil || !at[resource.SourceCache].good() {
		return "", false
	}
	return at[resource.SourceCache].server, true
}

// get returns what a source says; target counts for a management server only.
func (l layers[V]) get(s resource.Source, target, name string) *result[V] {
	if s == resource.SourceADS {
		return l.ads[wanted{target, name}]
	}
	if at := l.shared[name]; at != nil {
		return at[s]
	}
	return nil
}

// put replaces what a source says; nil is nothing.
func (l layers[V]) put(s resource.Source, target, name string, r *result[V]) {
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

// take stores an update. value is the update's own, or nil.
func (l layers[V]) take(
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
