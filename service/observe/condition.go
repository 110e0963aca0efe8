package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
)

// ConditionKind says which part of the daemon has a problem.
type ConditionKind string

// The kinds of conditions.
const (
	// ConditionStoreFailing means that pushes cannot be written to disk.
	ConditionStoreFailing ConditionKind = "store_failing"
	// ConditionShortage means that lbd itself lacks descriptors, ports or memory.
	ConditionShortage ConditionKind = "shortage"
	// ConditionServerUnreachable means that no stream to a management server is up.
	ConditionServerUnreachable ConditionKind = "server_unreachable"
	// ConditionResourceRejected means that lbd rejected (NACKed) a resource of a
	// management server.
	ConditionResourceRejected ConditionKind = "resource_rejected"
	// ConditionFileBad means that a resource file is invalid or cannot be read.
	ConditionFileBad ConditionKind = "file_bad"
	// ConditionChangeHeld means that a change waits for the operator's decision
	// while the last good version stays in use.
	ConditionChangeHeld ConditionKind = "change_held"
	// ConditionCredentialsInvalid means that a changed file of tokens or certificates
	// is invalid.
	ConditionCredentialsInvalid ConditionKind = "credentials_invalid"
	// ConditionAuditFailing means that the audit log cannot be written.
	ConditionAuditFailing ConditionKind = "audit_failing"
	// ConditionInsecure means that lbd runs with --insecure.
	ConditionInsecure ConditionKind = "insecure"
)

// ConditionKinds are all kinds, the most urgent first.
var ConditionKinds = []ConditionKind{
	ConditionStoreFailing, ConditionShortage, ConditionServerUnreachable, ConditionResourceRejected, ConditionFileBad,
	ConditionChangeHeld, ConditionCredentialsInvalid, ConditionAuditFailing, ConditionInsecure,
}

const (
	// MaxConditions is the maximum number of conditions of each kind in an answer.
	MaxConditions = 10
	// maxConditionText is the maximum length of a condition's text, in bytes.
	maxConditionText = 1000
)

// Condition is a problem of the whole daemon: one that no single cluster is the
// cause of. It exists for as long as its source reports it.
type Condition struct {
	Kind ConditionKind `json:"kind" enums:"store_failing,shortage,server_unreachable,resource_rejected,file_bad,change_held,credentials_invalid,audit_failing,insecure"`
	// Subject is what the condition is about: a server's URI, a resource, a file.
	Subject string    `json:"subject,omitempty"`
	Since   time.Time `json:"since"`
	// Text says what is wrong and what lbd does meanwhile, in one sentence.
	Text string `json:"text"`
	// Remedy says what the operator can do.
	Remedy string `json:"remedy,omitempty"`
	// NotReady makes /readyz fail while the condition lasts.
	NotReady bool `json:"not_ready,omitempty"`
}

// Conditions returns the current conditions of the daemon within a scope, the most
// urgent kind first and the oldest of each kind first. Beyond [MaxConditions] of a
// kind, one more condition says how many were left out.
func (s *State) Conditions(in *ledger.Scope) []Condition { return listed(s.allConditions(), in) }

func listed(all []Condition, in *ledger.Scope) []Condition {
	byKind := make(map[ConditionKind][]Condition)
	for _, c := range all {
		if c, ok := c.within(in); ok {
			byKind[c.Kind] = append(byKind[c.Kind], c)
		}
	}
	out := []Condition{}
	for _, kind := range ConditionKinds {
		of := byKind[kind]
		out = append(out, of[:min(len(of), MaxConditions)]...)
		if more := len(of) - MaxConditions; more > 0 {
			out = append(out, Condition{
				Kind: kind, Since: of[MaxConditions].Since, Text: fmt.Sprintf("%d more of this kind", more),
				NotReady: slices.ContainsFunc(of[MaxConditions:], func(c Condition) bool { return c.NotReady }),
			})
		}
	}
	return out
}

// within returns the condition as a caller of a scope sees it. ok is false if the caller does
// not see it: it is about a resource out of the scope, or about a file, which may have some.
func (c Condition) within(s *ledger.Scope) (_ Condition, ok bool) {
	if s.All() {
		return c, true
	}
	switch c.Kind {
	case ConditionStoreFailing, ConditionAuditFailing, ConditionInsecure:
		return c, true
	case ConditionShortage: // its error may have the address of an endpoint
		c.Text = overload.Resource(c.Subject).Text() + "; " + shortageEffect
		return c, true
	case ConditionServerUnreachable: // the number of targets includes those that are out of the scope
		c.Text, _, _ = strings.Cut(c.Text, " (targets: ")
		return c, true
	case ConditionResourceRejected:
		return c, s.Resource(difference.Change{Resource: c.Subject}.Key())
	default:
		return c, false
	}
}

// allConditions returns the conditions of all sources, the oldest first.
func (s *State) allConditions() []Condition {
	var out []Condition
	for _, source := range s.options.Conditions {
		for _, c := range source() {
			c.Since, c.Text = c.Since.UTC().Truncate(time.Millisecond), difference.Clip(c.Text, maxConditionText)
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Condition) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

// shortageEffect says what a shortage does.
const shortageEffect = "endpoints keep their states, and lbd retries what failed"

// overloaded remembers and logs the shortages that began and ended. The monitor makes
// one call at a time.
func (s *State) overloaded(states []overload.State) {
	events, before := s.options.Events, s.shortages
	s.shortages = make(map[overload.Resource]overload.State, len(states))
	for _, st := range states {
		s.shortages[st.Resource] = st
		if _, ok := before[st.Resource]; !ok {
			events.Add(Event{
				Type: EventShortageBegan, Reason: string(st.Resource), Error: st.Err.Error(),
				Says: st.Resource.Text() + ": endpoints keep their states until it is over",
			})
			events.log.Warn("lbd is out of a resource", "resource", string(st.Resource), "error", st.Err)
		}
	}
	for r, st := range before {
		if _, ok := s.shortages[r]; !ok {
			events.Add(Event{Type: EventShortageEnded, Reason: string(r), Says: "over: " + r.Text()})
			events.log.Info("shortage ended", "resource", string(r), "began", st.Since.UTC())
		}
	}
}

func (s *State) shortageConditions() []Condition {
	var out []Condition
	for _, st := range s.options.Overload.Current() {
		out = append(out, Condition{
			Kind: ConditionShortage, Subject: string(st.Resource), Since: st.Since,
			Text:   st.String() + "; " + shortageEffect,
			Remedy: remedies[st.Resource],
		})
	}
	return out
}

// remedies say what the operator can do about each shortage.
var remedies = map[overload.Resource]string{
	overload.Descriptors:       "raise the limit on open files (LimitNOFILE=, ulimit -n), or lower --max-connections",
	overload.SystemDescriptors: "raise fs.file-max, or find the process that holds so many files",
	overload.Buffers:           "give the machine's sockets more memory",
	overload.Memory:            "give the machine or the container more memory",
	overload.Watches:           "raise fs.epoll.max_user_watches, or find the process of the same user that watches so many descriptors",
	overload.LocalPorts:        "widen net.ipv4.ip_local_port_range, or find the process with so many connections to that address",
	overload.HeldConnections:   "raise the limit on open files (LimitNOFILE=, ulimit -n), or use connect mode tcp",
	overload.MemoryLimit:       "give the container more memory and raise GOMEMLIMIT with it, or find the caller with the most leases, streams and pushes",
	overload.SourceMemory:      "give the container more memory and raise GOMEMLIMIT with it, or have fewer endpoints in it",
	overload.CPU:               "give the machine or the container more CPU, or find the caller with the most requests",
	overload.APIConnections:    "raise --max-connections, and the limit on open files with it, or ask for fewer streams and shorter waits",
}
