package ctl

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// problem is an RFC 9457 problem response of lbd.
type problem struct {
	Title   string   `json:"title"`
	Status  int      `json:"status"`
	Detail  string   `json:"detail"`
	Code    string   `json:"code"`
	Retry   int64    `json:"retry_after_ms"`
	Errors  []rule   `json:"errors"`
	Explain []step   `json:"explain"`
	Holders []holder `json:"holders"`
}

// rule is an error, a warning or a note about a field of a resource.
type rule struct {
	Resource string `json:"resource"`
	Field    string `json:"field"`
	Reason   string `json:"reason"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
}

func (r rule) String() string {
	where := cmp.Or(r.Field, r.Resource)
	switch {
	case r.Column > 0:
		where = fmt.Sprintf("line %d, column %d: %s", r.Line, r.Column, where)
	case r.Line > 0:
		where = fmt.Sprintf("line %d: %s", r.Line, where)
	}
	return where + ": " + r.Reason
}

type step struct {
	Says string `json:"says"`
}

type holder struct {
	Identity string `json:"identity"`
	Owner    string `json:"owner"`
	Leases   int    `json:"leases"`
}

// refusal is a request that the daemon has refused.
type refusal struct {
	problem
	request  request
	daemon   string
	hasToken bool
	raw      []byte // the problem as JSON
}

// ExitCode returns the exit code of the process. kong.ExitCoder has the method.
func (r *refusal) ExitCode() int {
	switch {
	case slices.Contains(noEndpoint, r.Code), r.Code == "unknown_endpoint":
		return exitNegative
	case r.Status < http.StatusInternalServerError:
		return exitRefused
	default:
		return exitFailed
	}
}

// noEndpoint are the codes of picks that the load balancing policy answers without an endpoint.
var noEndpoint = []string{"dropped", "circuit_broken", "no_ready_endpoint", "all_excluded", "pick_timeout", "no_route"}

// remedies says for each code what the user of lbd ctl can do. A code that is not here is of a later
// version of lbd, or needs no other words than those of the daemon.
var remedies = map[string]string{
	"invalid_argument":       "correct the flag or the argument that the message names",
	"permission_denied":      "use a token or a context that has the role, or ask the operator of the daemon for it",
	"misdirected_request":    "call the daemon by IP address or as localhost, or add the name to its --allow-host",
	"unknown_cluster":        "lbd ctl get clusters lists the clusters",
	"unknown_target":         "lbd ctl get targets lists the targets",
	"unknown_lease":          "lbd ctl leases lists the held leases",
	"unknown_change":         "lbd ctl history lists the changes, and which ones can be restored",
	"unknown_overlay":        "lbd ctl overlays lists the overlays",
	"unknown_endpoint":       "lbd ctl get endpoints lists the endpoints of a cluster; --allow-missing is for one that comes later",
	"no_route":               "lbd ctl explain shows the routes; set --path and --header as the request has them",
	"method_not_allowed":     "the daemon may be older than this lbd: lbd version prints the version of lbd",
	"blocked":                "check the resource; if the change is intended, --allow-empty, --max-removed or a larger --max-shift permits it",
	"precondition_failed":    "another caller changed it since the preview, and nothing was changed: run the command again",
	"precondition_required":  "this command has no precondition for an absent resource: restore a cluster or everything",
	"too_large":              "push less at a time: docs/limits.md lists the limits",
	"uri_too_long":           "use fewer or shorter flags",
	"unsupported_media_type": "the file must be JSON, YAML or protobuf, in UTF-8 and uncompressed",
	"invalid_resource":       "correct the file; lbd check FILE shows the same errors without a daemon",
	"rate_limited":           "retry later; the message names the limit",
	"overloaded":             "retry later; /readyz?verbose of the daemon names the cause",
	"internal":               "see the log of the daemon, and report the problem",
	"dropped":                "the configuration of the cluster drops a part of the picks: retry",
	"circuit_broken":         "retry when requests have ended; lbd ctl leases shows who holds them",
	"no_ready_endpoint":      "lbd ctl get endpoints CLUSTER shows the state of the endpoints, and their errors",
	"all_excluded":           "exclude fewer endpoints",
	"shutting_down":          "retry when the daemon has restarted, or use another one",
	"pick_timeout":           "lbd ctl get endpoints CLUSTER shows the state of the endpoints; --wait waits longer",
	"index_not_reached":      "retry, or wait longer: lbd ctl fleet shows how far the daemon is behind",
	"storage_failed":         "see the log of the daemon: its disk may be full",
	"store_unavailable":      "the store of the daemon (etcd) cannot be reached: retry later",
	"replica_unavailable":    "another daemon of the fleet cannot be reached: lbd ctl fleet lists them",
}

func (r *refusal) remedy() string {
	switch {
	case r.Code == "not_found":
		return "the daemon is probably older than this lbd and does not have this request, or the URL has a wrong path"
	case r.Code == "unauthenticated" && r.hasToken:
		return "check the token file: the token may be unknown or expired, or not for this daemon"
	case r.Code == "unauthenticated":
		return "set a token with --token-file, LBD_CTL_TOKEN_FILE or lbd ctl context set"
	default:
		return remedies[r.Code]
	}
}

// Error describes the problem in words, and what to do.
func (r *refusal) Error() string {
	var b strings.Builder
	verb := "refused"
	switch {
	case slices.Contains(noEndpoint, r.Code):
		verb = "has no endpoint for"
	case r.Status >= http.StatusInternalServerError:
		verb = "failed to answer"
	}
	fmt.Fprintf(&b, "the daemon at %s %s %s %s: %s (%d %s)", r.daemon, verb, r.request.method, escape(r.request.path),
		escape(cmp.Or(r.Detail, r.Title)), r.Status, escape(r.Code))
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "\n  %s", escape(e.String()))
	}
	for _, h := range r.Holders {
		owner := cmp.Or(h.Owner, h.Identity, "a caller without a name")
		fmt.Fprintf(&b, "\n  %d leases are held by %s", h.Leases, escape(owner))
	}
	if r.Retry > 0 {
		fmt.Fprintf(&b, "\nRetry after %d ms.", r.Retry)
	}
	if remedy := r.remedy(); remedy != "" {
		fmt.Fprintf(&b, "\nWhat to do: %s.", remedy)
	}
	return b.String()
}
