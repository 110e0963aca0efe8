package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/fleet/share"
)

// errNoSession is the error of a session that has ended.
var errNoSession = errors.New("the session has ended")

// store is what a Fleet needs of etcd.
type store interface {
	// connect must succeed before the others are called.
	connect(ctx context.Context) error
	close()
	// grant creates a session. ttl is the time for which it lives without keepAlive, counted from any
	// moment after the call began.
	grant(ctx context.Context) (session int64, ttl time.Duration, err error)
	// keepAlive makes a session live for ttl from a moment after the call began. It returns
	// errNoSession if there is no such session.
	keepAlive(ctx context.Context, session int64) (ttl time.Duration, err error)
	// register makes the replica visible to others, for as long as the session lives.
	register(ctx context.Context, session int64, r roster.Replica) error
	// publish replaces the summary of a replica, for as long as the session lives.
	publish(ctx context.Context, session int64, replica string, summary []byte) error
	// summaries returns those of all replicas, which nothing watches.
	summaries(ctx context.Context) (map[string][]byte, error)
	// revoke ends a session.
	revoke(ctx context.Context, session int64) error
	// read returns all records and sessions of one revision, which includes every change that ended
	// before the call.
	read(ctx context.Context) (view, error)
	// watch calls f with the changes after a revision, in their order, until ctx ends or the watch
	// fails. It returns why.
	watch(ctx context.Context, after int64, f func(changes)) error
	// replace makes an update of the record of a key, if that has not changed since the base. An empty record is
	// deleted. It returns the revision of the update. If it was not made, watch reports the record that is there. An
	// error means that it is not known whether it was, or will be, made.
	replace(ctx context.Context, key string, u share.Update) (replaced bool, revision int64, err error)
}

// stored is the record of a key, or that there is none, since a revision.
type stored struct {
	record   share.Record
	revision int64
	exists   bool
	err      error // the record cannot be read
	// unreadable are the replicas whose entries cannot be read.
	unreadable map[string]error
}

// view is what the store has at a revision.
type view struct {
	revision int64
	records  map[string]stored
	members  map[string]member // by the ID of the replica
}

// record returns what the store has of a key.
func (v view) record(key string) stored {
	if s, ok := v.records[key]; ok {
		return s
	}
	return stored{revision: v.revision}
}

// member is a replica with a session.
type member struct {
	session int64
	replica roster.Replica
}

// changes are those of one revision, or of some in a row. A replica that has no session any more is a member without one.
type changes view
