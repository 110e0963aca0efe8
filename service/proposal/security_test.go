package proposal_test

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/proposal"
)

// secured is an EDS Cluster whose connections are secured by TLS.
func secured(name string) string { return edsWith(name, tls) }

// edsWith is an EDS Cluster with other fields.
func edsWith(name, fields string) string {
	return `{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: ` + name + `, type: EDS, ` + fields + `}`
}

const (
	tls = `transport_socket: {name: envoy.transport_sockets.tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, ` +
		`common_tls_context: {validation_context: {system_root_certs: {}}}}}`
	connectTCP = `metadata: {filter_metadata: {lbd: {connect: tcp}}}`
	connectTLS = `metadata: {filter_metadata: {lbd: {connect: tls}}}`

	plainWords    = "; for connections without TLS give it a Cluster with metadata: {filter_metadata: {lbd: {connect: tcp}}}"
	withoutConfig = "cluster a: the change disables TLS: the Cluster is removed" + plainWords
	withoutSocket = "cluster a: the change disables TLS: the new Cluster has no transport_socket" + plainWords
)

// TestTLSIsNotTakenAway: the removal of a Cluster or of its transport_socket is held.
func TestTLSIsNotTakenAway(t *testing.T) {
	a2 := file(endpoints("a", 2))
	both := directory{"c": file(secured("a")), "f": a2}
	kept := "cluster a, a=2"
	for name, c := range map[string]struct {
		scans []directory
		want  string
	}{
		"the Cluster goes":                  {[]directory{both, {"f": a2}}, kept + ", held(removed c: " + withoutConfig + ")"},
		"the Cluster goes out of its file":  {[]directory{{"f": file(secured("a"), endpoints("a", 2))}, {"f": a2}}, kept + ", held(modified f: " + withoutConfig + ")"},
		"the Cluster moves":                 {[]directory{both, {"f": file(secured("a"), endpoints("a", 2))}}, kept},
		"the Cluster goes, and comes back":  {[]directory{both, {"f": a2}, both}, kept},
		"Cluster and endpoints go":          {[]directory{both, {}}, ""},
		"the Cluster goes, and then all":    {[]directory{both, {"f": a2}, {}}, ""},
		"the transport_socket goes":         {[]directory{both, {"c": file(cluster("a", "a")), "f": a2}}, kept + ", held(modified c: " + withoutSocket + ")"},
		"connect: tcp is written":           {[]directory{both, {"c": file(edsWith("a", connectTCP)), "f": a2}}, kept},
		"connect: tcp, and then no Cluster": {[]directory{both, {"c": file(edsWith("a", connectTCP)), "f": a2}, {"f": a2}}, "a=2"},
		"connect: tls goes":                 {[]directory{{"c": file(edsWith("a", connectTLS)), "f": a2}, {"f": a2}}, kept + ", held(removed c: " + withoutConfig + ")"},
		"connect: tls is written":           {[]directory{both, {"c": file(edsWith("a", connectTLS)), "f": a2}}, kept},
		"a plain Cluster goes":              {[]directory{{"c": file(cluster("a", "a")), "f": a2}, {"f": a2}}, "a=2"},
		"others change": {
			[]directory{both, {"f": a2, "g": file(endpoints("b", 1))}},
			kept + ", b=1, held(removed c: " + withoutConfig + ")",
		},
		"another file covers the Cluster": {
			[]directory{both, {"b": file(cluster("a", "a")), "c": file(secured("a")), "f": a2}},
			kept + ", held(added b: " + withoutSocket + ")",
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, setting{}).play(c.scans, c.want, c.want)
		})
	}

	t.Run("permitted", func(t *testing.T) {
		d := start(t, setting{})
		d.scan(both)
		d.scan(directory{"f": a2})
		d.expect("in use", d.permit(), "a=2")
	})
	t.Run("the daemon's own mode is tls", func(t *testing.T) {
		d := start(t, setting{guard: proposal.Guard{TLS: true}})
		d.scan(directory{"c": file(edsWith("a", connectTLS)), "d": file(secured("b")), "f": a2, "g": file(endpoints("b", 1))})
		d.expect("in use", d.scan(directory{"f": a2, "g": file(endpoints("b", 1))}),
			"a=2, cluster b, b=1, held(removed d: "+strings.Replace(withoutConfig, "cluster a", "cluster b", 1)+")")
	})
}

// TestTLSIsNotTakenAwayFromOthers: the guard sees pushed resources and those of management
// servers.
func TestTLSIsNotTakenAwayFromOthers(t *testing.T) {
	a2, c := file(endpoints("a", 2)), file(secured("a"))
	for name, tt := range map[string]struct {
		setting setting
		scans   []directory
		want    string
	}{
		"pushed endpoints":          {setting{pushed: []string{endpoints("a", 1)}}, []directory{{"c": c}, {}}, "cluster a, held(removed c: " + withoutConfig + ")"},
		"a pushed Cluster covers":   {setting{pushed: []string{edsWith("a", connectTCP)}}, []directory{{"f": a2}, {"c": file(cluster("a", "a")), "f": a2}}, "cluster a, a=2"},
		"a server's Cluster stays":  {setting{configured: []string{secured("a")}}, []directory{{"c": c, "f": a2}, {"f": a2}}, "a=2"},
		"a server's Cluster covers": {setting{configured: []string{secured("a")}}, []directory{{"f": a2}, {"c": file(cluster("a", "a")), "f": a2}}, "a=2, held(added c: " + withoutSocket + ")"},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, tt.setting).play(tt.scans, tt.want, tt.want)
		})
	}
}

// TestRejectedClusters: a Cluster without a valid version is in error: its cluster does not
// get the defaults.
func TestRejectedClusters(t *testing.T) {
	a2, bad := file(endpoints("a", 2)), edsWith("a", "lb_policy: MAGLEV")
	const noEndpoints = `cluster "a" would have no usable endpoints; it has 2`
	for name, c := range map[string]struct {
		scans []directory
		want  string
	}{
		"beside its assignment":      {[]directory{{"f": file(bad, endpoints("a", 2))}}, "a=2, rejected a, !f partial"},
		"in a file of its own":       {[]directory{{"c": file(bad), "f": a2}}, "a=2, rejected a, !c not used"},
		"and another file has it":    {[]directory{{"c": file(bad), "d": file(secured("a")), "f": a2}}, "cluster a, a=2, !c not used"},
		"corrected":                  {[]directory{{"c": file(bad), "f": a2}, {"c": file(secured("a")), "f": a2}}, "cluster a, a=2"},
		"removed":                    {[]directory{{"c": file(bad), "f": a2}, {"f": a2}}, "a=2"},
		"after a good one":           {[]directory{{"c": file(secured("a")), "f": a2}, {"c": file(bad), "f": a2}}, "cluster a, a=2, !c kept"},
		"of a cluster that works":    {[]directory{{"f": a2}, {"c": file(bad), "f": a2}}, "a=2, !c not used, held(added c: " + noEndpoints + ")"},
		"in its place in a bad file": {[]directory{{"f": file(secured("a"), endpoints("a", 2), "{foo: 1}")}, {"f": file(bad, endpoints("a", 2))}}, "cluster a, a=2, !f kept, held(modified f: " + noEndpoints + ")"},
		"and nothing else any more":  {[]directory{{"f": file(bad, endpoints("a", 2))}, {"f": file(bad)}}, "a=2, rejected a, !f kept"},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, setting{})
			d.play(c.scans, c.want, c.want)
			for key, r := range d.last.Rejected {
				if says := r.Err.Error(); !strings.HasPrefix(says, key.String()+" of the file ") || !strings.Contains(says, "lb_policy: MAGLEV is not supported") {
					t.Errorf("the error is %q", says)
				}
			}
		})
	}
}
