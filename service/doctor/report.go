package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Status is the result of a check.
type Status string

// The results of checks.
const (
	OK Status = "ok"
	// Warning is what works, and should be looked at.
	Warning Status = "warning"
	// Problem is what does not work.
	Problem Status = "problem"
	// Skipped is a check that has no result: Found says why.
	Skipped Status = "skipped"
)

// order is the order of checks in a report.
var order = map[Status]int{Problem: 0, Warning: 1, Skipped: 2, OK: 3}

const (
	// MaxDetails is the maximum number of details of a check.
	MaxDetails = 10
	// MaxClusters is the maximum number of clusters that a report without a cluster examines.
	MaxClusters = 10
	// maxTargets is the maximum number of targets and resources with an error that are listed.
	maxTargets = 10
)

// Check is one check and its result.
type Check struct {
	// Check names the check. Several results may have the same name.
	Check  string `json:"check" example:"connections"`
	Status Status `json:"status" swaggertype:"string" enums:"ok,warning,problem,skipped"`
	// Cluster is the cluster that was checked; absent for a check of the daemon.
	Cluster string `json:"cluster,omitempty"`
	// Found is the result, in a sentence.
	Found string `json:"found" example:"2 of 2 endpoints refuse connections"`
	// Remedy is what the operator can do; absent if there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
	// Details are at most 10 lines, such as endpoints with their errors.
	Details []string `json:"details,omitempty"`
	// Since is when picks or requests began to fail; absent if they do not because of this, or if it is not known.
	Since time.Time `json:"since,omitzero" validate:"optional"`

	rank rank
}

// rank orders the problems of a report: a cause comes before what it causes.
type rank int

const (
	rankShortage  rank = iota // lbd lacks something itself
	rankCause                 // a source of the cluster, if the report is about one
	rankOfCluster             // the cluster, step by step
	rankOfDaemon              // other problems of the daemon
)

// Report is the result of all checks.
type Report struct {
	// Cluster is the cluster that was asked for; absent for the whole daemon.
	Cluster string `json:"cluster,omitempty"`
	// Status is problem if there is one, else warning if there is one, else ok.
	Status Status `json:"status" swaggertype:"string" enums:"ok,warning,problem"`
	// Summary is the first problem or warning.
	Summary  string `json:"summary" example:"2 of 2 endpoints refuse connections"`
	Problems int    `json:"problems"`
	Warnings int    `json:"warnings"`
	// Examined is how many clusters were examined; NotExamined is how many others have a problem.
	Examined    int `json:"clusters_examined"`
	NotExamined int `json:"clusters_not_examined,omitempty"`
	// Caller is who asks.
	Caller *Caller `json:"caller,omitempty"`
	// Daemon and Version are those of the daemon.
	Daemon  string    `json:"daemon"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	// Checks are sorted: first problems, then warnings, skipped checks, and those that found nothing.
	// A problem that may cause others comes first.
	Checks []Check `json:"checks"`
}

// Caller is what a caller may do.
type Caller struct {
	// Name is that of the identity; absent without one.
	Name string `json:"name,omitempty"`
	// Roles are those that the listener permits.
	Roles []string `json:"roles" example:"pick,read"`
	// Restricted is true if the caller may see only some clusters.
	Restricted bool `json:"restricted,omitempty"`
	// Expires is when the identity expires; absent if it does not.
	Expires *time.Time `json:"expires_at,omitempty"`
}

// Examine checks a daemon and some of its clusters: all that have a problem, or the one that was asked
// for.
func Examine(d *Daemon, clusters []*Cluster, asked string) *Report {
	r := &Report{
		Cluster: asked, Status: OK, Summary: "no problem found", Examined: len(clusters), NotExamined: d.NotExamined,
		Daemon: d.State.Name, Version: d.State.Version, Time: d.Now.UTC(), Caller: d.Caller,
	}
	var about *Cluster
	if asked != "" && len(clusters) > 0 {
		about = clusters[0]
	}
	r.Checks = d.checks(about)
	for _, c := range clusters {
		r.Checks = append(r.Checks, c.checks(d)...)
	}
	if asked == "" {
		r.Checks = append(r.Checks, d.otherClusters(len(clusters)))
	}
	slices.SortStableFunc(r.Checks, func(a, b Check) int {
		return cmp.Or(order[a.Status]-order[b.Status], int(a.rank-b.rank))
	})
	for _, c := range r.Checks {
		switch c.Status { //nolint:exhaustive // the others are not counted
		case Problem:
			r.Problems++
		case Warning:
			r.Warnings++
		}
	}
	if first := r.Checks[0]; first.Status == Problem || first.Status == Warning {
		r.Status, r.Summary = first.Status, first.Found
	}
	return r
}

// found returns a check of the daemon.
func found(check string, s Status, format string, args ...any) Check {
	return Check{Check: check, Status: s, Found: fmt.Sprintf(format, args...), rank: rankOfDaemon}
}

// do sets what to do.
func (c Check) do(format string, args ...any) Check {
	c.Remedy = fmt.Sprintf(format, args...)
	return c
}

// with sets the details.
func (c Check) with(details ...string) Check {
	c.Details = details
	if more := len(details) - MaxDetails; more > 0 {
		c.Details = append(slices.Clone(details[:MaxDetails-1]), fmt.Sprintf("%d more", more+1))
	}
	return c
}

// at sets the rank.
func (c Check) at(r rank) Check {
	c.rank = r
	return c
}

// maxNames is the maximum number of names in a sentence.
const maxNames = 5

// percent returns a ratio in percent.
func percent(ratio float64) string { return fmt.Sprintf("%.4g %%", 100*ratio) }
