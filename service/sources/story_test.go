package sources_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// scriptedServer is a management server as its client reports it: it sends what it has, and that it has sent
// nothing for 15 s.
type scriptedServer struct {
	silentServers
	update func([]resource.Update)

	mu      sync.Mutex
	has     map[resource.Key]resource.Item
	wanted  map[string]map[resource.Key]int // how often a target has subscribed
	pending []resource.Update
	version int
	wake    chan struct{}
}

func (s *scriptedServer) Want(target string, add, drop []resource.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted[target] == nil {
		s.wanted[target] = map[resource.Key]int{}
	}
	for _, key := range drop {
		delete(s.wanted[target], key)
	}
	for _, key := range add {
		s.version++
		n := s.version
		s.wanted[target][key] = n
		if _, has := s.has[key]; has {
			s.send(target, key)
			continue
		}
		time.AfterFunc(15*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if _, has := s.has[key]; !has && s.wanted[target][key] == n {
				s.send(target, key)
			}
		})
	}
}

// send sends a resource, or that there is none.
func (s *scriptedServer) send(target string, key resource.Key) {
	u := resource.Update{Target: target, Server: "passthrough:///one", Item: resource.Item{Key: key}}
	if item, has := s.has[key]; has {
		u.Item = item
		u.Version = fmt.Sprint(s.version)
	} else {
		u.Err, u.Ambient = &client.ResourceError{Kind: client.ErrorExpired, Key: key, Server: u.Server}, true
	}
	s.pending = append(s.pending, u)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// set adds, replaces or removes a resource.
func (s *scriptedServer) set(key resource.Key, item *resource.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if delete(s.has, key); item != nil {
		s.has[key] = *item
	}
	for _, target := range slices.Sorted(maps.Keys(s.wanted)) {
		if _, wanted := s.wanted[target][key]; wanted {
			s.send(target, key)
		}
	}
}

func (s *scriptedServer) run(done <-chan struct{}) {
	for {
		select {
		case <-s.wake:
		case <-done:
			return
		}
		s.mu.Lock()
		updates := s.pending
		s.pending = nil
		s.mu.Unlock()
		if len(updates) > 0 {
			s.update(updates)
		}
	}
}

// replica is a daemon of the story.
type replica struct {
	*service.Service

	server *scriptedServer
	files  *archive
	filed  map[resource.Key]resource.Item
	// warned are the changes of which an answer has said that they are not in use yet.
	warned map[resource.Key]uint64
	// byFile are the resources that its files have changed, after all pushes of them.
	byFile map[resource.Key]bool
	// lags is true if trees may not have yet what no answer was about.
	lags bool
}

// story is a fleet of two daemons with a management server each.
type story struct {
	*testing.T

	store    store.Store
	replicas []*replica
	// index is that of the last acknowledged change.
	index  uint64
	last   int            // the daemon that made it
	pushed step           // the last push
	quiet  bool           // nothing happens meanwhile
	by     map[string]int // the daemon that last changed a resource
	count  map[string]int // what happened
	log    []string
}

func startStory(t *testing.T) *story {
	st := &story{T: t, count: map[string]int{}, by: map[string]int{}}
	b, err := bootstrap.Parse([]byte(`{"node":{"id":"t"},"xds_servers":[{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}]}`), bootstrap.Options{Version: "1"})
	servicetest.Must(t, err)
	for range 2 {
		r := &replica{
			server: &scriptedServer{
				silentServers: silentServers{&b.Servers[0]}, has: map[resource.Key]resource.Item{},
				wanted: map[string]map[resource.Key]int{}, wake: make(chan struct{}, 1),
			},
			files: &archive{kept: map[string]*files.Version{}}, warned: map[resource.Key]uint64{}, filed: map[resource.Key]resource.Item{}, byFile: map[resource.Key]bool{},
		}
		r.Service = servicetest.New(func(o *service.Options) {
			o.Sources.Bootstrap, o.Sources.Targets = b, []string{"xds:///t1"}
			o.Sources.Changelog = changelog.Limits{Changes: 100, Bytes: 1 << 20}
		})
		r.server.update = r.Inbound.ServerUpdate
		st.replicas = append(st.replicas, r)
	}
	st.store, err = file.Open("", file.Options{OnCommit: func(c store.Commit) {
		for _, r := range st.replicas {
			r.Inbound.Commit(c)
		}
	}})
	servicetest.Must(t, err)
	done := make(chan struct{})
	for _, r := range st.replicas {
		servicetest.Must(t, r.Start(t.Context(), sources.Connections{
			Store: st.store, Servers: r.server, LastGood: &recordedLastGood{}, Reports: &recordedReports{}, Files: r.files, WatchFiles: r.files.watch,
		}))
		go r.server.run(done)
	}
	t.Cleanup(func() {
		close(done)
		for _, r := range st.replicas {
			r.Close()
		}
		servicetest.Must(t, st.store.Close())
	})
	return st
}

// step is a random step: what happens, at which daemon, and its details.
type step struct{ Kind, At, A, B, C int }

var (
	storyClusters    = []string{"a", "b", "c"}
	storyAssignments = []string{"a", "b", "s", "m"}
)

func at[T any](list []T, n int) T { return list[n%len(list)] }

// addresses are some of those of an origin: p for pushes, f for files, d for management servers.
func addresses(origin, name string, n int) (out []string) {
	for i := range 3 {
		if (n%7+1)>>i&1 == 1 {
			out = append(out, fmt.Sprintf("%s-%s-%d", origin, name, i))
		}
	}
	return out
}

func storyCluster(name string, n int) servicetest.Object {
	c := servicetest.Object{"@type": resource.TypeCluster.URL(), "name": name, "type": "EDS", "eds_cluster_config": servicetest.Object{"service_name": at([]string{"", "s", "m", name, "lost"}, n), "eds_config": servicetest.Object{"ads": servicetest.Object{}}}}
	if name == "c" && n%2 == 1 {
		delete(c, "type")
		delete(c, "eds_cluster_config")
		c["cluster_type"] = servicetest.Object{"name": "envoy.clusters.aggregate", "typed_config": servicetest.Object{
			"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": at([][]string{{"a", "b"}, {"b"}, {"a", "lost"}, {"b", "a"}}, n/2),
		}}
		c["lb_policy"] = "CLUSTER_PROVIDED"
	}
	return c
}

func storyRoutes(n int) []servicetest.Object {
	return []servicetest.Object{servicetest.Route("/", at([][]string{{"a"}, {"a=1", "b=1"}, {"a=1", "c=1"}, {"a=1", "lost=1"}, {"b=1", "c=1", "a=1"}, {"b"}, {"c=1", "gone=1"}}, n)...)}
}

// made is one resource of an origin, by the numbers of a step.
func made(origin string, s step) servicetest.Object {
	switch s.A % 5 {
	case 0, 1:
		name := at(storyAssignments, s.B)
		return servicetest.Assigned(name, addresses(origin, name, s.C)...)
	case 2, 3:
		return storyCluster(at(storyClusters, s.B), s.C)
	}
	name := at([]string{"t1", "t1", "t2"}, s.B)
	listener := servicetest.Listener(name, storyRoutes(s.C)...)
	manager := listener["api_listener"].(servicetest.Object)["api_listener"].(servicetest.Object) //nolint:errcheck // Listener has it
	switch routes := manager["route_config"].(servicetest.Object); s.B / 3 % 3 {                  //nolint:errcheck // the same
	case 1:
		delete(manager, "route_config")
		manager["rds"] = servicetest.Object{"route_config_name": at([]string{"r", "lost"}, s.C/7), "config_source": servicetest.Object{"ads": servicetest.Object{}}}
	case 2:
		routes["@type"], routes["name"] = resource.TypeRoutes.URL(), "r"
		return routes
	}
	return listener
}

func decoded(t testing.TB, o decode.Options, all ...servicetest.Object) []resource.Item {
	b, err := decode.All(servicetest.Encode(servicetest.Object{"resources": all}), o)
	servicetest.Must(t, err)
	return b.Items
}

// run makes a step. Changes are acknowledged, or refused.
func (st *story) run(s step) {
	r := at(st.replicas, s.At)
	acknowledge := func(what string, res *sources.PushResult, err error) {
		if err != nil {
			st.count[what+" refused"]++
			return
		}
		st.count[what]++
		st.index = max(st.index, res.Index)
		if len(res.Changes) == 0 && s.Kind >= 3 && s.Kind <= 6 {
			delete(r.warned, decoded(st, decode.Options{Policies: lb.PolicyTraits}, made("p", s))[0].Key)
			st.count["unchanged"]++
		}
		for _, c := range res.Changes {
			delete(r.warned, c.Key())
			st.by[c.Resource] = s.At % 2
			for n, r := range st.replicas {
				delete(r.byFile, c.Key())
				r.lags = r.lags || n != s.At%2
			}
		}
		for _, w := range res.Warnings {
			if strings.Contains(w.Reason, "not in force yet") {
				st.count["warnings"]++
				key, err := sources.ParseResource(w.Resource)
				servicetest.Must(st.T, err)
				r.warned[key] = res.Index
			}
		}
		st.log = append(st.log, fmt.Sprintf("%v %s by %d: index %d, changes %v, warnings %v", time.Now().UTC().Format("05.000"), what, s.At%2, res.Index, res.Changes, res.Warnings))
	}
	ctx := st.Context()
	endpoint := fmt.Sprintf("p-%s-%d:80", at(storyAssignments, s.B), s.C%3)
	switch s.Kind {
	case 0, 1, 2: // the management server
		var key resource.Key
		var item *resource.Item
		i := decoded(st, decode.Options{Policies: lb.PolicyTraits}, made("d", s))[0]
		if key = i.Key; s.Kind > 0 || s.C%2 > 0 {
			item = &i
		}
		for n, r := range st.replicas {
			if s.At%4 > 1 || s.At%2 == n {
				r.server.set(key, item)
				r.lags = true
			}
		}
		st.count["server"]++
		st.log = append(st.log, fmt.Sprintf("%v server %d sets %s to %v", time.Now().UTC().Format("05.000"), s.At%4, key, item != nil))
	case 3, 4:
		res, err := r.Sources.PushSnapshot(ctx, &sources.SnapshotRequest{
			Body: servicetest.Encode(servicetest.Object{"resources": []servicetest.Object{made("p", s), made("p", step{A: s.C, B: s.A, C: s.B})}}), Options: sources.ChangeOptions{AllowEmpty: true},
			Replace: s.Kind == 4 && s.C%3 == 0, MaxRemoved: -1,
		})
		acknowledge("snapshot", res, err)
	case 5, 6:
		if s.C%4 == 0 {
			s.A, s.B, s.C = st.pushed.A, st.pushed.B, st.pushed.C // once more
		}
		st.pushed = s
		res, err := r.Sources.PushSnapshot(ctx, &sources.SnapshotRequest{
			Body: servicetest.Encode(servicetest.Object{"resources": []servicetest.Object{made("p", s)}}), Options: sources.ChangeOptions{AllowEmpty: true},
		})
		acknowledge("push", res, err)
	case 7, 8:
		kind, name := sources.Endpoints, at(storyAssignments, s.B)
		if s.A%3 == 0 {
			kind, name = sources.Config, at(storyClusters, s.B)
		}
		res, err := r.Sources.Delete(ctx, kind, name, sources.ChangeOptions{})
		acknowledge("delete", res, err)
	case 9, 10:
		address := at(addresses(at([]string{"p", "d", "f"}, s.A), at(storyAssignments, s.A/3), 6), s.C) + ":80"
		res, err := r.Sources.PutOverlay(ctx, &sources.OverlayRequest{Overlay: drain(address), Cluster: at(storyClusters[:2], s.B), ID: fmt.Sprint("o", s.C%3), Options: sources.ChangeOptions{AllowEmpty: true}})
		acknowledge("overlay", res, err)
	case 11:
		res, err := r.Sources.DeleteOverlay(ctx, at(storyClusters[:2], s.B), fmt.Sprint("o", s.C%3), sources.ChangeOptions{})
		acknowledge("overlay removed", res, err)
	case 12:
		ttl := time.Duration(s.A%2) * 20 * time.Second
		res, err := r.Sources.SetEndpoint(ctx, &sources.EndpointRequest{Cluster: at(storyAssignments, s.B), Address: endpoint, Edit: sources.EndpointEdit{TTL: &ttl}})
		acknowledge("registration", res, err)
	case 13:
		res, err := r.Sources.RemoveEndpoint(ctx, &sources.EndpointRequest{Cluster: at(storyAssignments, s.B), Address: endpoint, Options: sources.ChangeOptions{AllowEmpty: true}})
		acknowledge("endpoint removed", res, err)
	case 14:
		if st.index > 0 {
			res, err := r.Sources.Restore(ctx, &sources.RestoreRequest{Index: uint64(s.C) % st.index, Options: sources.ChangeOptions{AllowEmpty: true}, MaxRemoved: -1})
			acknowledge("restore", res, err)
		}
	case 15, 16:
		st.scan(r, s)
	default:
		for _, r := range st.replicas {
			r.lags = true
		}
		time.Sleep(time.Duration(s.C%20) * time.Second)
		st.log = append(st.log, fmt.Sprintf("%v", time.Now().UTC().Format("05.000")))
	}
}

// scan adds a resource to the files of a daemon, or removes one, and permits what is held.
func (st *story) scan(r *replica, s step) {
	i := decoded(st, decode.Options{}, made("f", s))[0]
	r.byFile[i.Key], r.lags = true, true
	if r.filed[i.Key] = i; s.Kind == 15 {
		delete(r.filed, i.Key)
	}
	scan := &files.Scan{Identity: files.Identity{Inode: 1}, Files: map[string]*files.File{}}
	for key, i := range r.filed {
		scan.Files[strings.ReplaceAll(key.String(), "/", "-")] = &files.File{Sum: string(i.Raw), Modified: time.Unix(1000, 0), Bundle: &decode.Bundle{Items: []resource.Item{i}}}
	}
	r.files.scanned(scan)
	for _, h := range r.Sources.Files().Held {
		_, err := r.Sources.PermitFiles(st.Context(), h.Hash, "story")
		servicetest.Must(st.T, err)
		st.count["permitted"]++
	}
	st.count["files"]++
	st.log = append(st.log, fmt.Sprintf("%v files of %d: %v", time.Now().UTC().Format("05.000"), s.At%2, slices.Collect(maps.Keys(r.filed))))
}

// contradiction returns the acknowledged changes that a pick contradicts: the resources are those that do not have
// what was picked.
func (st *story) contradiction(r *replica, target, cluster, address string) (what string, of []resource.Key) {
	stored := st.store.Snapshot()
	byHand := func(kind resource.Type, name string) (i resource.Item, ok bool) {
		key := resource.Key{Type: kind, Name: name}
		if e, pushed := stored.Get(key); pushed {
			i, _ = e.Value.(resource.Item)
			return i, true
		}
		i, ok = r.filed[key]
		return i, ok
	}
	host, _, _ := strings.Cut(address, ":")
	part := strings.Split(host, "-")
	origin, name := part[0], part[1]

	key := resource.Key{Type: sources.Endpoints, Name: name}
	i, ok := byHand(sources.Endpoints, name)
	has := ok && slices.ContainsFunc(i.Assignment.Localities[0].Endpoints, func(e *resource.Endpoint) bool { return e.Addresses[0] == address })
	if ok != (origin != "d") || ok && !has {
		return fmt.Sprintf("%s is not an endpoint of %s", address, key), []resource.Key{key}
	}
	leaves := []string{cluster}
	if i, ok := byHand(sources.Config, cluster); ok && i.Cluster.Type == resource.ClusterAggregate {
		leaves = i.Cluster.Leaves
	}
	leads := false
	var configs []resource.Key
	for _, leaf := range append(leaves, cluster) {
		i, ok := byHand(sources.Config, leaf)
		leads = leads || !ok || i.Cluster.Type == resource.ClusterEDS && i.Cluster.AssignmentName() == name
		configs = append(configs, resource.Key{Type: sources.Config, Name: leaf})
	}
	if !leads {
		return fmt.Sprintf("%s does not lead to %s", cluster, key), append(configs, key)
	}
	overlays, err := r.Sources.Overlays("")
	servicetest.Must(st.T, err)
	for _, o := range overlays {
		if o.Cluster == cluster && o.Endpoint == address {
			return fmt.Sprintf("%s of %s is drained", address, cluster), []resource.Key{overlay.Key(o.Cluster, o.ID)}
		}
	}
	if target == "" {
		return "", nil
	}
	listener := resource.Key{Type: resource.TypeListener, Name: target}
	keys := []resource.Key{listener}
	i, ok = byHand(listener.Type, target)
	if ok && i.Listener.Routes == nil {
		key := resource.Key{Type: resource.TypeRoutes, Name: i.Listener.RouteName}
		keys = append(keys, key)
		i, ok = byHand(key.Type, key.Name)
	} else if ok {
		i.Routes = i.Listener.Routes
	}
	if !ok {
		return "", nil
	}
	for _, to := range i.Routes.VirtualHosts[0].Routes[0].Clusters {
		if to.Name == cluster {
			return "", nil
		}
	}
	return fmt.Sprintf("%s of %v does not lead to %s", target, keys, cluster), keys
}

// unused reports whether files have changed a resource, and nothing says yet that picks use the change: the trees take
// their time, or the state says that they do not.
func (st *story) unused(r *replica, keys []resource.Key) bool {
	waits := func(key resource.Key) bool {
		return r.byFile[key] && (!st.quiet || slices.ContainsFunc(r.Sources.Files().NotInForce, func(w fault.Problem) bool { return w.Resource == key.String() }))
	}
	return slices.ContainsFunc(keys, waits)
}

// check picks through everything: no pick contradicts what is in force.
func (st *story) check() error {
	for n, r := range st.replicas {
		inForce := r.Sources.AwaitIndex(st.Context(), st.index, 0) == nil
		for key, index := range r.warned {
			if r.Sources.Index() >= index {
				delete(r.warned, key)
			}
		}
		if !inForce {
			st.count["not in force"]++
		}
		for _, q := range []picks.Request{{Target: "t1", Path: "/"}, {Target: "t2", Path: "/"}, {Cluster: "a"}, {Cluster: "b"}, {Cluster: "c"}} {
			q.N = 12
			out, err := servicetest.Pick(r.Service, q)
			if err != nil {
				st.count["picks "+string(servicetest.Code(err))]++
				continue
			}
			for _, p := range out.Picks {
				st.count["picks"]++
				what, keys := st.contradiction(r, q.Target, p.Cluster, p.Address)
				if what == "" || st.unused(r, keys) || !inForce && (n != st.last || r.lags || slices.ContainsFunc(keys, func(key resource.Key) bool {
					_, warned := r.warned[key]
					by, changed := st.by[key.String()]
					return warned || changed && by != n
				})) {
					continue
				}
				return fmt.Errorf("daemon %d, %s%s, index %d of %d: %s", n, q.Target, q.Cluster, r.Sources.Index(), st.index, what)
			}
		}
	}
	return nil
}

// TestStory: after an acknowledgement, no pick through any target contradicts it, unless the answer said that it is
// not in force yet; with its index, none does, at any daemon. The stories mix changes of a management server with
// those by hand.
func TestStory(t *testing.T) {
	total := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			n := rapid.IntRange(0, 1000)
			return step{rapid.IntRange(0, 18).Draw(t, "kind"), n.Draw(t, "at"), n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c")}
		}), 5, 50).Draw(rt, "steps")
		var err error
		var log []string
		synctest.Test(t, func(t *testing.T) {
			st := startStory(t)
			st.begin()
			for _, s := range steps {
				st.last = s.At % 2
				st.run(s)
				st.settle(s.C%2 > 0)
				if err = st.check(); err != nil {
					break
				}
			}
			if err == nil {
				err = st.end()
			}
			log = st.log
			for what, n := range st.count {
				total[what] += n
			}
		})
		total["stories"]++
		if err != nil {
			rt.Fatalf("%v\n%s", err, strings.Join(log, "\n"))
		}
	})
	t.Logf("%v", total)
}

// begin makes targets that have endpoints.
func (st *story) begin() {
	for _, r := range st.replicas {
		for _, i := range decoded(st, decode.Options{Policies: lb.PolicyTraits},
			servicetest.Listener("t1", storyRoutes(1)...), storyCluster("a", 0), storyCluster("b", 1), servicetest.Assigned("a", addresses("d", "a", 6)...),
			servicetest.Assigned("s", addresses("d", "s", 6)...)) {
			r.server.set(i.Key, &i)
		}
	}
	st.run(step{Kind: 5, A: 4, B: 2, C: 18}) // the Listener t2
	st.settle(true)
}

// settle waits until nothing happens any more, or not.
func (st *story) settle(quiet bool) {
	if st.quiet = quiet; !quiet {
		return
	}
	synctest.Wait()
	for _, r := range st.replicas {
		r.lags = false
	}
}

// end waits until all that is not known is known to be absent: everything is in force then.
func (st *story) end() error {
	time.Sleep(40 * time.Second)
	st.settle(true)
	for n, r := range st.replicas {
		if err := r.Sources.AwaitIndex(st.Context(), st.index, 0); err != nil {
			return fmt.Errorf("daemon %d, at the end: %w", n, err)
		}
	}
	return st.check()
}
