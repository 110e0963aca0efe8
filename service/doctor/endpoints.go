package doctor

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
)

// Attempt is a connection to an endpoint that was tried for the report.
type Attempt struct {
	Address string
	// Err is why it failed; nil if it was made.
	Err error
	// NotBefore and NotAfter are the validity of the endpoint's certificate; zero without TLS.
	NotBefore, NotAfter time.Time
}

// failing is an endpoint to which there is no connection.
type failing struct{ address, err string }

// connections checks the connections of the endpoints in use, and those that were tried.
func (c *Cluster) connections(d *Daemon) []Check {
	var bad []failing
	var ejected []string
	ready, waiting, inUse := 0, 0, 0
	tried := make(map[string]*Attempt)
	for i := range c.Attempts {
		tried[c.Attempts[i].Address] = &c.Attempts[i]
	}
	for _, e := range endpoints(c.State.Priorities) {
		a := tried[e.Address]
		switch {
		case e.State == "UNHEALTHY":
			continue
		case e.State == "EJECTED":
			ejected = append(ejected, fmt.Sprintf("%s: %s", e.Address, e.LastError))
		case e.State == "TRANSIENT_FAILURE", e.State != "READY" && e.LastError != "":
			bad = append(bad, failing{e.Address, e.LastError})
		case e.State == "READY":
			ready++
		case a != nil && a.Err != nil:
			bad = append(bad, failing{e.Address, a.Err.Error()})
		default:
			waiting++
		}
		inUse++
	}
	out := c.failures(bad, inUse, ready)
	out = append(out, c.outliers(ejected, inUse)...)
	out = append(out, c.neverPicked()...)
	if bad == nil && (inUse > len(ejected) || inUse == 0) {
		out = append(out, c.connected(ready, waiting, inUse))
	}
	return append(out, c.tried(d, tried)...)
}

// connected is the check of connections if none has failed.
func (c *Cluster) connected(ready, waiting, all int) Check {
	switch {
	case c.blind():
		return c.found("connections", Skipped, "connect mode none: lbd does not connect to endpoints, and takes all as reachable; whether they are is not known")
	case ready > 0:
		return c.found("connections", OK, "%d of %s connected", ready, difference.Plural(all, "endpoint is", "endpoints are"))
	case len(c.Attempts) > 0:
		return c.found("connections", OK, "no pick has used the cluster yet; %s connections", difference.Plural(len(c.Attempts), "endpoint accepts", "endpoints accept"))
	case c.State.State == "WARMING" || c.State.State == "IDLE":
		return c.found("connections", Skipped, "lbd has not connected yet: no pick has used the cluster")
	default:
		return c.found("connections", Skipped, "lbd is connecting to %s", difference.Count(waiting, "endpoint"))
	}
}

// blind reports whether lbd connects to no endpoints of the cluster, or of a leaf.
func (c *Cluster) blind() bool {
	return c.State.ConnectMode == "none" || slices.ContainsFunc(c.State.Leaves, func(l observe.LeafState) bool { return l.ConnectMode == "none" })
}

// failures groups the endpoints without connection by what is wrong. If no other is connected, that is
// a problem.
func (c *Cluster) failures(bad []failing, all, ready int) []Check {
	groups := make(map[*cause][]failing)
	for _, f := range bad {
		g := causeOf(f.err)
		groups[g] = append(groups[g], f)
	}
	var out []Check
	for g, list := range groups {
		status := Problem
		if ready > 0 {
			status = Warning
		}
		details := make([]string, len(list))
		for i, f := range list {
			details[i] = strings.TrimPrefix(f.err, "connect to ") // it begins with the address then
			if !strings.HasPrefix(details[i], f.address) {
				details[i] = f.address + ": " + details[i]
			}
		}
		out = append(out, c.found(g.check, status, "%d of %s %s: %s", len(list), difference.Count(all, "endpoint"), g.says(len(list)), details[0]).do("%s", g.remedy).with(details...))
	}
	slices.SortFunc(out, func(a, b Check) int { return cmp.Or(len(b.Details)-len(a.Details), cmp.Compare(a.Found, b.Found)) })
	return out
}

// outliers says what outlier detection has ejected, or that picks fail at times because it ejects endpoints.
func (c *Cluster) outliers(ejected []string, all int) []Check {
	says := fmt.Sprintf("outlier detection has ejected %d of %s: their requests fail too often", len(ejected), difference.Count(all, "endpoint"))
	status := Warning
	switch t := c.State.Trouble; {
	case t != nil && t.Ejecting:
		status, says = Problem, t.Cause
	case len(ejected) == 0:
		return nil
	case len(ejected) == all:
		status = Problem
	}
	return []Check{c.found("outliers", status, "%s", says).do("check the endpoints; an overlay of the kind hold_ejections stops ejections").with(ejected...)}
}

// neverPicked names the endpoints in use that no request hash leads to: a ring has fewer entries than there
// are endpoints.
func (c *Cluster) neverPicked() []Check {
	var without []string
	all := 0
	for p, e := range endpoints(c.State.Priorities) {
		if p.InUse && e.State != "UNHEALTHY" {
			all++
		}
		if p.InUse && e.NeverPicked {
			without = append(without, e.Address)
		}
	}
	if without == nil {
		return nil
	}
	return []Check{c.found("endpoints", Warning, "%d of %s of priority %d can never get a pick, because the ring has no entry for them: %s",
		len(without), difference.Count(all, "endpoint"), c.State.PriorityInUse, difference.Few(without, maxNames)).
		do("split the cluster, or choose another lb_policy: a ring has at most 4096 entries, or maximum_ring_size if that is less").with(without...)}
}

// tried checks what the connections that were tried add to the states of the tree.
func (c *Cluster) tried(d *Daemon, tried map[string]*Attempt) []Check {
	var lost, certificates, again []string
	worst, valid := OK, 0
	for _, e := range endpoints(c.State.Priorities) {
		a := tried[e.Address]
		switch {
		case a == nil:
		case a.Err != nil && e.State == "READY":
			lost = append(lost, fmt.Sprintf("%s: %v", e.Address, a.Err))
		case a.Err == nil && e.State == "TRANSIENT_FAILURE":
			again = append(again, e.Address)
		case a.Err == nil && !a.NotAfter.IsZero():
			if s, says := validity(a.NotBefore, a.NotAfter, d.Now); s != OK {
				certificates, worst = append(certificates, e.Address+": the certificate "+says), s
			} else {
				valid++
			}
		}
	}
	var out []Check
	if lost != nil {
		out = append(out, c.found("connections", Warning, "%s READY, but did not accept a connection now: %s", difference.Plural(len(lost), "endpoint is", "endpoints are"), lost[0]).
			do("check these endpoints; lbd notices within %s", c.State.NoticeTime).with(lost...))
	}
	if again != nil {
		out = append(out, c.found("connections", Warning, "%s now: %s", difference.Plural(len(again), "endpoint that failed accepts connections", "endpoints that failed accept connections"), again[0]).
			do("wait: lbd connects again after its back-off").with(again...))
	}
	if certificates != nil {
		out = append(out, c.found("TLS", worst, "%s", certificates[0]).do("renew the certificates of the endpoints").with(certificates...))
	}
	if certificates == nil && valid > 0 {
		out = append(out, c.found("TLS", OK, "%s valid", difference.Plural(valid, "certificate of an endpoint is", "certificates of endpoints are")))
	}
	if c.NotTried != "" {
		out = append(out, c.found("connections", Skipped, "%s", c.NotTried))
	}
	return out
}

// cause is what is wrong with a connection.
type cause struct {
	// texts are in the errors of such connections: any of them.
	texts []string
	check string
	// one and many say it of one endpoint, and of several.
	one, many string
	remedy    string
}

func (c *cause) says(n int) string {
	if n == 1 {
		return c.one
	}
	return c.many
}

// causes are in order: the first that matches counts.
var causes = []*cause{
	{
		[]string{"has expired or is not yet valid: current time", "certificate expired"},
		"TLS", "has an expired certificate, or one that is not valid yet", "have an expired certificate, or one that is not valid yet",
		"renew the certificates of the endpoints; if they are valid, correct the clock of this host",
	},
	{
		[]string{"signed by unknown authority", "not trusted"},
		"TLS", "has a certificate of an unknown authority", "have certificates of an unknown authority",
		"add the authority to ca_certificate_file of the certificate provider in the bootstrap, or replace the certificates",
	},
	{
		[]string{": wanted ", "certificate is valid for", "not valid for any names", "cannot validate certificate for"},
		"TLS", "has a certificate with another name", "have certificates with other names",
		"correct the expected names in the transport_socket of the Cluster (match_typed_subject_alt_names, sni), or the certificates",
	},
	{
		[]string{"it rejected the certificate", "it asked for a certificate"},
		"TLS", "refuses lbd's client certificate", "refuse lbd's client certificate",
		"correct the identity of the certificate provider in the bootstrap, or what the endpoints trust",
	},
	{
		[]string{"does not look like a TLS handshake"},
		"TLS", "does not speak TLS", "do not speak TLS",
		"remove the transport_socket of the Cluster, or enable TLS at the endpoints",
	},
	{
		[]string{"certificate provider "},
		"TLS", "cannot be reached with TLS, as lbd lacks certificates", "cannot be reached with TLS, as lbd lacks certificates",
		"correct certificate_providers in the bootstrap",
	},
	{[]string{"tls handshake"}, "TLS", "fails the TLS handshake", "fail the TLS handshake", "compare the transport_socket of the Cluster with the TLS configuration of the endpoints"},
	{
		[]string{"connection refused"},
		"connections", "refuses connections", "refuse connections",
		"start the server at these addresses, or correct the addresses and ports in the ClusterLoadAssignment",
	},
	{
		[]string{"is denied: lbd listens there", "denied by --deny-endpoints", "not in --allow-endpoints"},
		"connections", "is not permitted", "are not permitted",
		"correct the addresses, or --allow-endpoints and --deny-endpoints of the daemon",
	},
	{
		[]string{"no route to host", "network is unreachable"},
		"connections", "cannot be reached: there is no route", "cannot be reached: there is no route",
		"check the routes and the network of this host",
	},
	{[]string{"no such host", "resolve "}, "DNS", "has a name that does not resolve", "have names that do not resolve", "correct the names, or the DNS records"},
	{
		[]string{"i/o timeout", "deadline exceeded", "no answer within", "timed out", "not done within"},
		"connections", "does not answer", "do not answer",
		"check that the hosts run, and the firewalls and the network between this host and them",
	},
	{[]string{""}, "connections", "cannot be reached", "cannot be reached", "check these endpoints, and the network between this host and them"},
}

// causeOf returns what is wrong with a connection, by its error.
func causeOf(err string) *cause {
	for _, c := range causes {
		if slices.ContainsFunc(c.texts, func(text string) bool { return strings.Contains(err, text) }) {
			return c
		}
	}
	return causes[len(causes)-1]
}

// endpoints yields the endpoints of priorities, each with its priority.
func endpoints(priorities []observe.PriorityState) iter.Seq2[*observe.PriorityState, *observe.EndpointState] {
	return func(yield func(*observe.PriorityState, *observe.EndpointState) bool) {
		for i := range priorities {
			for _, l := range priorities[i].Localities {
				for k := range l.Endpoints {
					if !yield(&priorities[i], &l.Endpoints[k]) {
						return
					}
				}
			}
		}
	}
}
