package decode

import (
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Rejected is a Cluster of a bundle that breaks a rule. Without the Cluster, its cluster
// would have the defaults, which may be less than what the author asks for: no TLS.
type Rejected struct {
	Key resource.Key
	Why string // the first broken rules, each with its field
}

// maxRejectedProblems is the number of problems in Rejected.Why.
const maxRejectedProblems = 3

// Valid returns, of a body that All rejects, the resources that are valid by themselves,
// and the Clusters that are not. It returns nil if there are none, or if the body as a
// whole cannot be read.
//
// A Cluster is not valid either if an unknown field was probably meant to be its
// transport_socket or is within that, even if Options.Lenient is set: it would have
// less TLS than it asks for.
func Valid(body []byte, o Options) (b *Bundle) {
	var err error
	defer func() {
		if err != nil {
			b = nil
		}
	}()
	defer rejectPanic(resource.Key{Type: typeBundle}, &err)
	d := newBundling(o)
	d.valid = true
	if e := d.read(body); e != nil {
		d.bundle.Items = nil
	}
	valid := d.bundle.Items[:0:0]
	for i, item := range d.bundle.Items {
		if !d.broken[i] {
			valid = append(valid, item)
		}
	}
	if len(valid) == 0 && len(d.rejected) == 0 {
		return nil
	}
	d.bundle.Items, d.bundle.Rejected = valid, d.rejected
	return d.bundle
}

// keepRejected adds the rules that the Cluster at a path breaks, for Valid.
func (d *bundling) keepRejected(k resource.Key, broken *problemList, at string) {
	if !d.valid || k.Type != resource.TypeCluster || k.Name == "" || broken.empty() {
		return
	}
	var words []string
	for _, p := range broken.list[:min(len(broken.list), maxRejectedProblems)] {
		p.Field = within(at, p.Field)
		words = append(words, p.String())
	}
	d.rejected = append(d.rejected, Rejected{Key: k, Why: strings.Join(words, "; ")})
}

// misspelledSecurity returns the unknown fields of a Cluster that are within its
// transport_socket, or were probably meant to be.
func (r *report) misspelledSecurity() *problemList {
	var l problemList
	for _, p := range r.unknown.list {
		if r.key.Type == resource.TypeCluster && strings.Contains(strings.ToLower(strings.ReplaceAll(p.String(), "_", "")), "transportsocket") {
			l.list = append(l.list, p)
		}
	}
	return &l
}
