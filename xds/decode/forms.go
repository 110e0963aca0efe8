package decode

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A form is a JSON body that is no bundle, and that people have: what Envoy and other programs print, or read.
type form struct {
	has string // a member of it that no resource has
	is  string // what it is
	// resources are the paths of its Clusters, ClusterLoadAssignments and other resources. Lists are not in a path: it
	// leads through all elements. Without paths it is rejected.
	resources []string
	// says is what is not read of it or, without resources, what to do instead.
	says string
}

const (
	writeList    = "write a list of endpoints: " + listEntry
	onlyClusters = "its Clusters and ClusterLoadAssignments are read, and nothing else of it"
)

// forms are in the order in which they are recognized.
var forms = []form{
	{"configs", "a config dump of Envoy", []string{
		"configs.static_clusters.cluster", "configs.dynamic_active_clusters.cluster", "configs.cluster",
		"configs.static_endpoint_configs.endpoint_config", "configs.dynamic_endpoint_configs.endpoint_config", "configs.endpoint_config",
	}, onlyClusters},
	{"dynamic_active_clusters", "a part of a config dump of Envoy", []string{"static_clusters.cluster", "dynamic_active_clusters.cluster"}, onlyClusters},
	{
		"dynamic_endpoint_configs", "a part of a config dump of Envoy",
		[]string{"static_endpoint_configs.endpoint_config", "dynamic_endpoint_configs.endpoint_config"},
		onlyClusters,
	},
	{"static_resources", "a bootstrap of Envoy", []string{"static_resources.clusters"}, onlyClusters},
	{"config", "the output of a client status service (CSDS)", []string{
		"config.generic_xds_configs.xds_config",
		"config.xds_config.cluster_config.dynamic_active_clusters.cluster", "config.xds_config.endpoint_config.dynamic_endpoint_configs.endpoint_config",
	}, "only resources that are in use are read"},
	{"dynamic_resources", "a bootstrap of Envoy without resources of its own", nil, "write a bootstrap of gRPC for --bootstrap, which names the management server"},
	{"xds_servers", "a bootstrap of gRPC", nil, "give it to lbd as --bootstrap"},
	{"cluster_statuses", "the output of Envoy's /clusters", nil, "it has no weights of localities: use that of /config_dump?include_eds"},
	{
		"host_statuses", "the output of istioctl proxy-config endpoint", nil,
		"it has no weights of localities: use that of istioctl proxy-config all -o json, or " + writeList,
	},
	{"apiVersion", "an object of Kubernetes", nil, "write xDS resources, or a list of endpoints: " + listEntry},
	{"targets", "a list of targets for Prometheus", nil, writeList},
	{"ServiceID", "the output of Consul's catalog", nil, writeList},
	{"Checks", "the output of Consul's health checks", nil, writeList},
}

// formIn returns the form of an object, or nil.
func formIn(has func(name string) bool) *form {
	for i := range forms {
		if has(forms[i].has) || has(text.Camel(forms[i].has)) {
			return &forms[i]
		}
	}
	return nil
}

// form reads an object that has a form. It reports whether it has one.
func (d *bundling) form(body []byte, at string) (ok bool, err error) {
	d.options.pause()
	o := text.Members(body)
	f := formIn(func(name string) bool { return o.Find(name) != nil })
	switch isResource := typeIn(o) != ""; {
	case f != nil && f.resources == nil && o.Find("@type") == nil:
		d.reject(at, "is %s: %s", f.is, f.says)
		return true, nil
	case isResource:
		return false, nil
	case f == nil || f.resources == nil:
		return d.named(o, at)
	}
	before := len(d.places)
	for _, path := range f.resources {
		if err := d.follow(body, at, strings.Split(path, ".")); err != nil {
			return true, err
		}
	}
	if len(d.places) == before && d.problems.empty() {
		d.reject(at, "is %s, and has no resources at %s", f.is, strings.Join(f.resources, ", "))
	}
	v := d.begin()
	v.warn(at, "is %s: %s", f.is, f.says)
	d.end(v, "")
	return true, nil
}

// egctl prints a config dump for each proxy, by namespace and name.
const (
	maxNamed = 2    // objects around a form, whose members are names
	maxNames = 1000 // of an object
)

// named reads an object of forms by their names.
func (d *bundling) named(o text.Object, at string) (ok bool, err error) {
	if len(o) > maxNames || strings.Count(at, "[") == maxNamed {
		return false, nil
	}
	var unread []string
	for _, m := range o {
		read := false
		if m.Value[0] == '{' {
			if read, err = d.form(m.Value, at+"["+strconv.Quote(m.Name)+"]"); err != nil {
				return true, err
			}
		}
		if ok = ok || read; !read {
			unread = append(unread, m.Name)
		}
		if !ok && m.Value[0] != '{' {
			return false, nil
		}
	}
	if ok && unread != nil {
		v := d.begin()
		v.warn(at, "not all of it is read: %s", text.Clip(strings.Join(unread, ", ")))
		d.end(v, "")
	}
	return ok, nil
}

// follow reads the resources to which a path leads from a value.
func (d *bundling) follow(value []byte, at string, path []string) error {
	if value[0] == '[' {
		list := text.Members(value)
		if d.tooMany(len(list)) {
			return nil
		}
		for i, m := range list {
			if err := d.step(m.Value, element(at, i), path); err != nil {
				return err
			}
		}
		return nil
	}
	return d.step(value, at, path)
}

// step is follow for a value that is no list, or for an element of one.
func (d *bundling) step(value []byte, at string, path []string) error {
	if len(path) == 0 || value[0] != '{' {
		return d.resourceIn(value, at)
	}
	for _, m := range text.Members(value) {
		if m.Name == path[0] || m.Name == text.Camel(path[0]) {
			return d.follow(m.Value, join(at, path[0]), path[1:])
		}
	}
	return nil
}

// resourceIn reads a resource of a form: its type is in @type, or follows from its fields. A STATIC Cluster becomes one
// of type EDS with an assignment, which has the same endpoints.
func (d *bundling) resourceIn(body []byte, at string) error {
	o := text.Members(body)
	if t := typeIn(o); body[0] == '{' && o.Find("@type") == nil {
		if ok, err := d.form(body, at); ok || err != nil {
			return err
		}
		if t == "" {
			return d.untyped(at)
		}
		body = rest(o, `"@type":"`+t.URL()+`"`)
		o = text.Members(body)
	}
	find := func(name string) []byte {
		if value := o.Find(name); value != nil {
			return value
		}
		return o.Find(text.Camel(name))
	}
	if d.static[string(find("cluster_name"))] && strings.HasSuffix(at, "endpoint_config") {
		return nil // that of a STATIC Cluster, which has been read
	}
	assignment := find("load_assignment")
	isStatic := o.Text("type") == "STATIC" || o.Find("type") == nil && find("cluster_type") == nil
	if assignment == nil || !isStatic || v3URL(o.Text("@type")) != resource.TypeCluster.URL() {
		return d.jsonItem(body, at)
	}
	if err := d.jsonItem(rest(o, `"type":"EDS"`, "type", "load_assignment", "loadAssignment"), at); err != nil {
		return err
	}
	name := cmp.Or(string(o.Find("name")), `""`)
	if d.static == nil {
		d.static = make(map[string]bool)
	}
	d.static[name] = true
	body = rest(text.Members(assignment), `"cluster_name":`+name, "cluster_name", "clusterName")
	return d.jsonResource(within(at, "load_assignment"), resource.TypeAssignment, text.Members(body), body)
}

// untyped rejects an object at a path whose type is not known.
func (d *bundling) untyped(at string) error {
	d.reject(at, "holds neither resources nor fields of only one of %s: add @type", aTypes)
	return nil
}

// rest returns an object without some members, and with another one, which may be empty.
func rest(o text.Object, member string, without ...string) []byte {
	out := append([]byte{'{'}, member...)
	for _, m := range o {
		if slices.Contains(without, m.Name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.Quoted...), ':'), m.Value...)
	}
	return append(out, '}')
}
