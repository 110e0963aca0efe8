package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/sources"
)

// Daemon is what is known of a daemon, as far as the caller may see it.
type Daemon struct {
	Now   time.Time
	State observe.DaemonState
	// Caller is who asks; nil if that is not known.
	Caller *Caller
	// Descriptors are the open file descriptors, and DescriptorLimit how many there may be.
	// DescriptorErr is why they could not be counted.
	Descriptors, DescriptorLimit int
	DescriptorErr                error
	// ClockStep is how much more time has passed since the start by the wall clock than by the
	// monotonic one.
	ClockStep time.Duration
	// Store is the state of the store; StoreErr is why it is not known.
	Store    sources.StoreState
	StoreErr error
	// XDS has the resources that are wanted, and whose state is not acked.
	XDS   sources.XDSState
	Files sources.FilesState
	// Fleet is the state of the fleet; Shared is false without one.
	Fleet    roster.State
	Overlays []overlays.Overlay
	// Covered are the resources that a push or a file covers.
	Covered []sources.Covered
	// Targets are the xds targets.
	Targets []Target
	// Clusters are the summaries of all clusters, and NotExamined is how many have a problem and are not
	// examined, because there are too many.
	Clusters    []observe.ClusterSummary
	NotExamined int
	// Certificates are lbd's own.
	Certificates []Certificate
}

// Target is an xds target.
type Target struct {
	Name string
	// Error is why every pick fails; empty if it does not.
	Error string
	// Pending: the target waits for its Listener and routes.
	Pending bool
	// Unknown are the clusters of its routes that no source has.
	Unknown []string
	// Refusing says that many picks fail for which no route or cluster was found; nil if few do.
	Refusing *ledger.Failure
	// Unsupported are the matches of routes that lbd does not support, with the reason.
	Unsupported []string
}

// Certificate is one that lbd presents.
type Certificate struct {
	// Name says what it is for, such as the flag of its file.
	Name string
	// NotBefore and NotAfter are its validity; Err is why it cannot be read.
	NotBefore, NotAfter time.Time
	Err                 error
}

// kinds says for each kind of condition which check it belongs to.
var kinds = map[observe.ConditionKind]struct {
	check  string
	status Status
}{
	observe.ConditionShortage:           {"shortage", Problem},
	observe.ConditionStoreFailing:       {"store", Problem},
	observe.ConditionServerUnreachable:  {"management servers", Problem},
	observe.ConditionResourceRejected:   {"resources", Problem},
	observe.ConditionFileBad:            {"files", Problem},
	observe.ConditionChangeHeld:         {"files", Problem},
	observe.ConditionCredentialsInvalid: {"credentials", Problem},
	observe.ConditionAuditFailing:       {"audit log", Problem},
	observe.ConditionInsecure:           {"security", Warning},
}

// checks returns the checks of the daemon. about is the only cluster that the caller asked for; nil for
// all.
func (d *Daemon) checks(about *Cluster) []Check {
	var out []Check
	has := make(map[string]bool)
	for _, c := range d.State.Conditions {
		kind, ok := kinds[c.Kind]
		if !ok { // a kind that is newer than this package
			kind.check, kind.status = string(c.Kind), Problem
		}
		check := found(kind.check, kind.status, "%s", c.Text).do("%s", c.Remedy)
		switch {
		case c.Kind == observe.ConditionShortage:
			check.rank = rankShortage
		case about == nil || about.dependsOn(d, c):
			check.rank = rankCause
		}
		out = append(out, check)
		has[kind.check] = true
	}
	own := slices.Concat(
		[]Check{d.shortage(), d.store(), d.servers()}, d.resources(about), []Check{d.files()}, d.targets(about), d.overlays(about),
		d.certificates(), []Check{d.clock()}, d.fleet(about), d.covered(about),
	)
	for _, c := range own {
		if c.Status != OK || !has[c.Check] { // else a condition says more
			out = append(out, c)
		}
	}
	return append(out, d.access(), found("daemon", OK, "%s runs lbd %s since %s", cmp.Or(d.State.Name, "this daemon"), d.State.Version, d.State.Started.Format(time.RFC3339)))
}

func (d *Daemon) shortage() Check {
	if d.DescriptorErr != nil {
		return found("shortage", Skipped, "the open files of the process cannot be counted: %v", d.DescriptorErr)
	}
	used := fmt.Sprintf("%d of %d file descriptors are open", d.Descriptors, d.DescriptorLimit)
	if d.DescriptorLimit > 0 && d.Descriptors*10 >= d.DescriptorLimit*9 {
		return found("shortage", Warning, "%s", used).do("raise the limit on open files (LimitNOFILE=, ulimit -n), or lower --max-connections")
	}
	return found("shortage", OK, "lbd lacks nothing; %s", used)
}

// maxBehind is how many seconds a daemon may be behind its store.
const maxBehind = 30

func (d *Daemon) store() Check {
	s := d.Store
	switch {
	case d.StoreErr != nil:
		return found("store", Problem, "the store is not readable: %v", d.StoreErr).do("see the log of the daemon; /readyz?verbose shows when the store is loaded")
	case !s.Loaded:
		return found("store", Problem, "the daemon does not know yet what is stored: %s", cmp.Or(s.Error, "it is being read")).
			do("if that does not say what to do, check etcd and the network between it and this host; lbd tries again")
	case s.Unreadable > 0:
		return found("store", Problem, "%s in etcd cannot be read: the daemon uses what they were before", difference.Count(s.Unreadable, "record")).
			do("the log names them: push these resources again, or upgrade lbd if a newer version wrote them")
	case len(s.UnknownKinds) > 0:
		return found("store", Warning, "the store has records of kinds that this lbd does not know: %s; they have no effect here", strings.Join(slices.Sorted(maps.Keys(s.UnknownKinds)), ", ")).
			do("a newer lbd has put them: upgrade this one")
	case s.BehindSeconds != nil && *s.BehindSeconds > maxBehind:
		return found("store", Warning, "the daemon last knew %.0f s ago that it has all that etcd has", *s.BehindSeconds).
			do("check etcd and the network between it and this host")
	case s.Kind == sources.StoreInMemory:
		return found("store", OK, "pushed resources are in memory only, at index %d: a restart loses them", s.Served)
	default:
		return found("store", OK, "pushed resources are readable and writable (%s), at index %d", s.Kind, s.Served)
	}
}

func (d *Daemon) servers() Check {
	switch {
	case !d.XDS.Configured:
		return found("management servers", OK, "none is configured")
	case d.XDS.Fallbacks > 0:
		return found("management servers", Warning, "%s a fallback server", difference.Plural(d.XDS.Fallbacks, "target uses", "targets use")).
			do("check the preferred server; lbd returns to it by itself")
	}
	for _, l := range d.XDS.LoadReports {
		if !l.Connected && l.LastError != "" {
			return found("management servers", Warning, "load reports to %s fail: %s", l.Server, l.LastError).do("check that the server supports LRS")
		}
	}
	var names []string
	for _, s := range d.XDS.Servers {
		if s.Connected {
			names = append(names, s.Server)
		}
	}
	if names == nil {
		return found("management servers", OK, "no server is in use: nothing is requested from one")
	}
	return found("management servers", OK, "connected to %s", difference.Few(slices.Compact(names), maxNames))
}

// missing says what the states of resources mean that are not rejected.
var missing = map[string]string{
	"does_not_exist":            "the management server does not have %s",
	"does_not_exist_but_cached": "the management server has deleted %s; the last good version stays in use",
	"received_error":            "the management server reports an error for %s",
	"received_error_but_cached": "the management server reports an error for %s; the last good version stays in use",
	"timeout":                   "the management server did not send %s in time",
	"requested":                 "the management server has not sent %s yet",
}

// resources returns the resources of management servers that have an error. A NACK is a condition.
func (d *Daemon) resources(about *Cluster) []Check {
	if !d.XDS.Configured {
		return nil
	}
	var out []Check
	seen := make(map[string]bool)
	more := 0
	for _, r := range d.XDS.Resources {
		says, ok := missing[r.State]
		name := r.Type + "/" + r.Name
		concerns := about != nil && about.needs(name)
		onDemand := strings.HasPrefix(r.Target, "cluster:") // any caller can invent such a name
		if !ok || seen[name] || onDemand && !concerns && !strings.HasSuffix(r.State, "_but_cached") || r.State == "requested" && !concerns {
			continue
		}
		seen[name] = true
		if len(out) == maxTargets {
			more++
			continue
		}
		text := fmt.Sprintf(says, name)
		if r.Error != "" {
			text += ": " + r.Error
		}
		c := found("resources", Problem, "%s", text).do("check the management server %s: GET /v1/xds shows the state of each resource", r.Server)
		if about == nil || concerns {
			c.rank = rankCause
		}
		out = append(out, c)
	}
	if more > 0 {
		out = append(out, found("resources", Warning, "%d more resources of management servers have an error", more).do("GET /v1/xds lists them"))
	}
	if out == nil {
		out = append(out, found("resources", OK, "no resource of a management server is rejected or missing"))
	}
	return out
}

func (d *Daemon) files() Check {
	if len(d.Files.Files) == 0 {
		return found("files", OK, "no resource files are in use")
	}
	restricted := d.Caller != nil && d.Caller.Restricted // such a caller does not see the conditions of files
	for _, f := range d.Files.Files {
		if f.State == sources.FileBad && restricted {
			return found("files", Problem, "resource file %s is invalid: %s", f.File, f.Error).do("correct the file; lbd check FILE shows the errors")
		}
	}
	return found("files", OK, "%s, all valid", difference.Plural(len(d.Files.Files), "resource file", "resource files"))
}

// targets returns the targets that cannot be used, or have routes to clusters that are not known.
func (d *Daemon) targets(about *Cluster) []Check {
	var out []Check
	for _, t := range d.Targets {
		r := rankOfDaemon
		if about == nil || about.State != nil && slices.Contains(about.State.Targets, t.Name) {
			r = rankCause
		}
		switch {
		case t.Error != "":
			out = append(out, found("targets", Problem, "picks of %s fail: %s", t.Name, t.Error).
				do("push its Listener and routes with POST /v1/snapshot, or add them to the management server; GET /v1/targets shows why").at(r))
		case t.Pending:
			out = append(out, found("targets", Warning, "%s waits for its Listener and routes", t.Name).do("check the management server").at(r))
		case t.Refusing != nil:
			c := found("targets", Problem, "picks of %s fail before they have a cluster, most with %s", t.Name, t.Refusing.Kind).
				do("compare path= and the headers of the picks with its routes: GET /v1/targets/NAME shows them").at(r)
			c.Since = t.Refusing.Since.UTC().Truncate(time.Millisecond)
			out = append(out, c)
		}
		if len(t.Unknown) > 0 {
			names := strings.Join(quoted(t.Unknown), ", ")
			out = append(out, found("targets", Problem, "routes of %s lead to clusters that no source has: %s", t.Name, names).
				do("push these clusters, or correct the names in the routes").at(r))
		}
		if len(t.Unsupported) > 0 {
			out = append(out, found("targets", Warning, "routes of %s use what lbd does not support: matching picks fail", t.Name).with(t.Unsupported...).at(r))
		}
	}
	if more := len(out) - maxTargets; more > 0 {
		out = append(out[:maxTargets], found("targets", Warning, "%d more problems of targets", more).do("GET /v1/targets lists the targets"))
	}
	if len(out) > 0 || len(d.Targets) == 0 {
		return out
	}
	return []Check{found("targets", OK, "%s, all with routes to known clusters", difference.Count(len(d.Targets), "target"))}
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", name)
	}
	if more := len(out) - MaxDetails; more > 0 {
		out = append(out[:MaxDetails], fmt.Sprintf("%d more", more))
	}
	return out
}

// oldOverlay is the age at which an overlay without an end is probably forgotten.
const oldOverlay = 7 * 24 * time.Hour

// overlays returns the overlays that have no effect, or are probably forgotten. Those of the cluster that
// was asked for are among its own checks.
func (d *Daemon) overlays(about *Cluster) []Check {
	var forgotten, without []string
	for i := range d.Overlays {
		o := &d.Overlays[i]
		if about != nil && o.Cluster == about.Name {
			continue
		}
		if why := idle(o); why != "" {
			without = append(without, describeOverlay(o, d.Now)+": "+why)
		} else if o.Expires == nil && d.Now.Sub(o.Created) > oldOverlay {
			forgotten = append(forgotten, describeOverlay(o, d.Now))
		}
	}
	var out []Check
	if len(without) > 0 {
		out = append(out, found("overlays", Warning, "%s no effect", difference.Plural(len(without), "overlay has", "overlays have")).
			do("delete those that are not needed any more").with(without...))
	}
	if len(forgotten) > 0 {
		out = append(out, found("overlays", Warning, "%s and has no end", difference.Plural(len(forgotten), "overlay is older than 7 days", "overlays are older than 7 days")).
			do("delete those that are not needed any more").with(forgotten...))
	}
	if out == nil {
		out = append(out, found("overlays", OK, "%s", difference.Plural(len(d.Overlays), "overlay", "overlays")))
	}
	return out
}

// idle says why an overlay has no effect; empty if it has one.
func idle(o *overlays.Overlay) string {
	switch {
	case o.SupersededBy != "":
		return "superseded by " + o.SupersededBy
	case o.Endpoints != nil && *o.Endpoints == 0:
		return "it matches no endpoint"
	default:
		return ""
	}
}

// describeOverlay says what an overlay does, who put it, when, and why.
func describeOverlay(o *overlays.Overlay, now time.Time) string {
	text := fmt.Sprintf("%s of %s %s", o.ID, o.Cluster, o.Says)
	if o.Author != "" {
		text += ", by " + o.Author
	}
	text += ", " + max(0, now.Sub(o.Created)).Round(time.Second).String() + " ago"
	if o.Expires != nil {
		text += ", until " + o.Expires.UTC().Format(time.RFC3339)
	}
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	return text
}

// certificates returns lbd's own certificates that have expired, or will soon.
func (d *Daemon) certificates() []Check {
	var out []Check
	for _, c := range d.Certificates {
		if c.Err != nil {
			out = append(out, found("certificates", Problem, "%s: %v", c.Name, c.Err).do("correct the file; lbd reads it again"))
		} else if s, says := validity(c.NotBefore, c.NotAfter, d.Now); s != OK {
			out = append(out, found("certificates", s, "%s: the certificate %s", c.Name, says).do("renew the certificate; lbd reads the file again"))
		}
	}
	if out == nil && len(d.Certificates) > 0 {
		out = append(out, found("certificates", OK, "%s of lbd valid", difference.Plural(len(d.Certificates), "certificate is", "certificates are")))
	}
	return out
}

// expiresSoon is the longest time before its end that is a warning; that of a certificate for a short
// time is a tenth of it.
const expiresSoon = 14 * 24 * time.Hour

// validity describes whether a certificate is valid now.
func validity(notBefore, notAfter, now time.Time) (s Status, says string) {
	at := notAfter.UTC().Format(time.RFC3339)
	switch left := notAfter.Sub(now); {
	case left < 0:
		return Problem, "expired at " + at
	case now.Before(notBefore):
		return Problem, "is not valid before " + notBefore.UTC().Format(time.RFC3339)
	case left < min(expiresSoon, notAfter.Sub(notBefore)/10):
		return Warning, fmt.Sprintf("expires at %s, in %v", at, left.Round(time.Minute))
	default:
		return OK, "is valid until " + at
	}
}

// maxClockStep is the step of the wall clock that is reported.
const maxClockStep = 5 * time.Second

func (d *Daemon) clock() Check {
	if step := d.ClockStep; step.Abs() > maxClockStep {
		says := fmt.Sprintf("the wall clock of the daemon's host was set by %v since lbd started", step.Round(time.Millisecond))
		if step > 0 {
			says += ", or the host was suspended"
		}
		return found("clock", Warning, "%s", says).do("check that the clock is synchronized (NTP): validity of certificates, ends of overlays and times in logs depend on it")
	}
	what, at := "", d.Now.Add(maxClockStep)
	for i := range d.Clusters {
		if c := &d.Clusters[i]; c.Updated.After(at) {
			what, at = "the last change of cluster "+c.Name, c.Updated
		}
	}
	for i := range d.Overlays {
		if o := &d.Overlays[i]; o.Created.After(at) {
			what, at = "overlay "+o.ID+" of "+o.Cluster, o.Created
		}
	}
	if what != "" {
		return found("clock", Warning, "%s is from the future, by %v: the clocks of two replicas differ, or the clock of this one was set back",
			what, at.Sub(d.Now).Round(time.Second)).do("synchronize the clocks (NTP)")
	}
	return found("clock", OK, "the wall clock was not set since lbd started, and no change is from the future")
}

// covered warns about the resources that a push or a file covers. Those of the cluster that was asked for are
// among its own checks.
func (d *Daemon) covered(about *Cluster) []Check {
	if len(d.Covered) == 0 || about != nil {
		return nil
	}
	all := make([]string, len(d.Covered))
	for i, c := range d.Covered {
		all[i] = fmt.Sprintf("%s: %s covers that of %s", c.Resource, c.By.Phrase(), c.Source.Phrase())
	}
	return []Check{found("sources", Warning, "%s not in use, because of a push or a file: %s", difference.Plural(len(all), "resource is", "resources are"), all[0]).
		do("examine the cluster to see how they differ; delete the push if the other source should apply").with(all...)}
}

// access says what the caller may do.
func (d *Daemon) access() Check {
	if d.Caller == nil {
		return found("access", Skipped, "every caller has all roles")
	}
	says := fmt.Sprintf("%s has the roles %s", cmp.Or(d.Caller.Name, "a caller without identity"), strings.Join(d.Caller.Roles, ", "))
	if d.Caller.Restricted {
		says += " for some clusters: checks of others, and of files, are not shown"
	}
	if e := d.Caller.Expires; e != nil && e.Sub(d.Now) < 24*time.Hour {
		return found("access", Warning, "%s; the identity expires at %s", says, e.Format(time.RFC3339)).do("create another token: lbd token new")
	}
	return found("access", OK, "%s", says)
}

// otherClusters is about the clusters that were not examined.
func (d *Daemon) otherClusters(examined int) Check {
	switch {
	case d.NotExamined > 0:
		return found("clusters", Warning, "%d more of %d clusters have problems, and were not examined", d.NotExamined, len(d.Clusters)).do("lbd doctor CLUSTER examines one")
	case len(d.Clusters) == 0:
		return found("clusters", OK, "there are no clusters")
	case examined == 0:
		return found("clusters", OK, "%s, all without a problem at first sight: lbd doctor CLUSTER examines one in detail", difference.Count(len(d.Clusters), "cluster"))
	default:
		return found("clusters", OK, "%d of %s examined; the others have no problem at first sight", examined, difference.Plural(len(d.Clusters), "cluster was", "clusters were"))
	}
}

// fleet returns what is wrong in the fleet.
func (d *Daemon) fleet(about *Cluster) []Check {
	f := &d.Fleet
	if !f.Shared {
		return []Check{found("fleet", OK, "the daemon shares no store with others")}
	}
	var out []Check
	if f.Error != "" {
		out = append(out, found("fleet", Problem, "what the other replicas publish cannot be read from etcd: %s", f.Error).do("check etcd and the network between it and this host"))
	}
	if !f.Joined && f.Error == "" {
		out = append(out, found("fleet", Problem, "this daemon has no session in etcd: leases of clusters with limit_scope fleet are refused").
			do("check etcd and the network between it and this host"))
	}
	versions := make(map[string]bool)
	for _, r := range f.Replicas {
		if r.State == "live" {
			versions[r.Version] = true
		}
		if r.Summary != nil && r.Summary.BehindSeconds > maxBehind {
			out = append(out, found("fleet", Warning, "replica %s is %.0f s behind the store", cmp.Or(r.Name, r.ID), r.Summary.BehindSeconds).do("examine that replica: lbd doctor --url=%s", r.Address))
		}
	}
	if len(versions) > 1 {
		out = append(out, found("fleet", Warning, "replicas run %d versions of lbd", len(versions)).do("complete the upgrade"))
	}
	for _, x := range f.Disagreements {
		if about != nil && about.Name != x.Cluster {
			continue
		}
		c := found("fleet", Problem, "cluster %s: %s (%s), others can", x.Cluster, x.Says, difference.Few(x.From, maxNames)).
			do("check the network between these replicas and the endpoint: the endpoint itself answers others").at(rankCause)
		out = append(out, c)
		if len(out) >= maxTargets {
			break
		}
	}
	if out == nil {
		out = append(out, found("fleet", OK, "%s, which agree about the endpoints", difference.Plural(len(f.Replicas), "replica", "replicas")))
	}
	return out
}
