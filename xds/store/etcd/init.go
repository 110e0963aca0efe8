package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Init makes a prefix that of a new fleet, unless it has one, and returns the fleet's id.
func Init(ctx context.Context, c Config) (fleet string, created bool, err error) {
	s := prepare(c, Options{})
	defer func() { err = errors.Join(err, s.Close()) }()
	f, _, err := s.readFormat(ctx)
	if _, empty := errors.AsType[*EmptyError](err); !empty {
		return f.Fleet, false, err
	}
	if old := s.outdated(ctx); len(old) > 0 {
		return "", false, fmt.Errorf("lbd needs etcd 3.5 or later: %s", strings.Join(old, ", "))
	}
	f = format{Version: formatVersion, Fleet: randomID(fleetSize)}
	if _, err = s.occupy(ctx, clientv3.OpPut(s.keys.format(), f.encode())); err == nil {
		return f.Fleet, true, nil
	}
	if now, _, is := s.readFormat(ctx); is == nil { // created by another process just now
		return now.Fleet, false, nil
	}
	return "", false, err
}

// occupy puts the first key under the prefix, if there is no other one, and returns its revision. The prefix must not
// be under that of a fleet either, whose keys it would share.
func (s *Store) occupy(ctx context.Context, first clientv3.Op) (revision int64, err error) {
	conditions := []clientv3.Cmp{absent(string(s.keys)).WithPrefix()}
	why := []clientv3.Op{clientv3.OpGet(s.keys.format(), clientv3.WithCountOnly()), clientv3.OpGet(s.keys.migration())}
	var parents []layout
	for i := range strings.Trim(s.config.Prefix, "/") {
		if s.keys[i] == '/' {
			parent := s.keys[:i+1]
			parents = append(parents, parent)
			conditions = append(conditions, absent(parent.format()), absent(parent.migration()))
			why = append(why, clientv3.OpGet(parent.format(), clientv3.WithCountOnly()), clientv3.OpGet(parent.migration(), clientv3.WithCountOnly()))
		}
	}
	res, err := s.txn(ctx, conditions, []clientv3.Op{first}, why...)
	if errors.Is(err, rpctypes.ErrPermissionDenied) && len(parents) > 0 { // the role has the prefix only, and cannot see what is above
		parents = nil
		res, err = s.txn(ctx, conditions[:1], []clientv3.Op{first}, why[:2]...)
	}
	switch {
	case err != nil:
		return 0, s.failure(err)
	case res.Succeeded:
		return res.Header.Revision, nil
	}
	got := func(n int) *clientv3.GetResponse { return (*clientv3.GetResponse)(res.Responses[n].GetResponseRange()) }
	if got(0).Count > 0 {
		return 0, fmt.Errorf("the etcd prefix %s has resources already; choose another prefix, or delete it: etcdctl del --prefix %s", s.config.Prefix, s.keys)
	}
	if kvs := got(1).Kvs; len(kvs) > 0 {
		return 0, fmt.Errorf("the etcd prefix %s has the remains of a migration that began at %s; if it does not run any more, delete them: etcdctl del --prefix %s", s.config.Prefix, kvs[0].Value, s.keys)
	}
	for i, parent := range parents {
		if got(2+2*i).Count+got(3+2*i).Count > 0 {
			return 0, fmt.Errorf("the etcd prefix %s is below %s, which is that of another fleet; choose a prefix beside it", s.config.Prefix, strings.TrimSuffix(string(parent), "/"))
		}
	}
	return 0, fmt.Errorf("the etcd prefix %s has keys of another program, or of a fleet below it; choose another prefix", s.config.Prefix)
}
