package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
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
)

// ConditionKinds are all kinds, the most urgent first.
var ConditionKinds = []ConditionKind{
	ConditionStoreFailing, ConditionShortage, ConditionServerUnreachable,
	ConditionResourceRejected, ConditionFileBad, ConditionChangeHeld,
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
	Kind ConditionKind `json:"kind" enums:"store_failing,shortage,server_unreachable,resource_rejected,file_bad,change_held"`
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

// conditions holds the functions that report conditions.
type conditions struct {
	mu      sync.Mutex
	sources []func() []Condition
}

// AddConditions registers a function that returns the conditions of one part of
// the daemon as they are now, or nothing. It is called for every probe of
// readiness and once a second while a dashboard is open, from any goroutine, so it
// must not block. Conditions that last must keep their Since.
func (s *Service) AddConditions(source func() []Condition) {
	s.conditions.mu.Lock()
	defer s.conditions.mu.Unlock()
	s.conditions.sources = append(s.conditions.sources, source)
}

// Conditions returns the current conditions of the daemon, the most urgent kind
// first and the oldest of each kind first. Beyond [MaxConditions] of a kind, one
// more condition says how many were left out.
func (s *Service) Conditions() []Condition {
	byKind := make(map[ConditionKind][]Condition)
	for _, c := range s.allConditions() {
		byKind[c.Kind] = append(byKind[c.Kind], c)
	}
	out := []Condition{}
	for _, kind := range ConditionKinds {
		of := byKind[kind]
		slices.SortStableFunc(of, func(a, b Condition) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Subject, b.Subject))
		})
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

// allConditions returns the conditions of all sources, in no order.
func (s *Service) allConditions() []Condition {
	s.conditions.mu.Lock()
	sources := slices.Clone(s.conditions.sources)
	s.conditions.mu.Unlock()
	var out []Condition
	for _, source := range sources {
		for _, c := range source() {
			c.Since, c.Text = c.Since.UTC().Truncate(time.Millisecond), shortened(c.Text)
			out = append(out, c)
		}
	}
	return out
}

// shortened cuts a text that is longer than maxConditionText.
func shortened(text string) string {
	if len(text) <= maxConditionText {
		return text
	}
	end := maxConditionText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// serverConditions reports management servers that cannot be reached, and the
// resources of theirs that are rejected.
func (s *Service) serverConditions() []Condition {
	if s.followed == nil {
		return nil
	}
	now := s.followed.recent.get(s.followed.server.Status)
	return append(unreachableServers(now.Servers), rejectedResources(now.Resources)...)
}

// unreachableServers reports the servers that each authority tried without
// success, up to the first that is connected. servers are in order of authority
// and fallback.
func unreachableServers(servers []client.ServerStatus) []Condition {
	var out []Condition
	reported, served := make(map[string]bool), make(map[string]bool)
	for i, server := range servers {
		if server.Connected {
			served[server.Authority] = true
		}
		if served[server.Authority] || server.LastError == nil || reported[server.URI] {
			continue
		}
		reported[server.URI] = true
		since := server.Since
		if since.IsZero() {
			since = server.LastErrorAt
		}
		meanwhile := "the last good resources stay in use"
		for _, next := range servers[i+1:] {
			if next.Authority == server.Authority && next.Connected && next.Targets > 0 {
				meanwhile = fmt.Sprintf("fallback server %s is in use (targets: %d)", next.URI, next.Targets)
				break
			}
		}
		out = append(out, Condition{
			Kind: ConditionServerUnreachable, Subject: server.URI, Since: since,
			Text:   fmt.Sprintf("management server %s cannot be reached (%s); %s", server.URI, reason(server.LastError), meanwhile),
			Remedy: "check the server and the network; lbd reconnects by itself",
		})
	}
	return out
}

// reason is an error's text without what says that it came through gRPC.
func reason(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// rejectedResources reports the resources whose last version was rejected.
func rejectedResources(resources []client.ResourceStatus) []Condition {
	var out []Condition
	var last resource.Key
	for _, r := range resources { // sorted: those of several targets follow each other
		if r.Key == last {
			continue
		}
		if r.Rejection == nil || r.State != client.Nacked && r.State != client.NackedButCached {
			continue
		}
		meanwhile := "there is no earlier version"
		if r.State == client.NackedButCached {
			meanwhile = "the last good version stays in use"
		}
		last = r.Key
		out = append(out, Condition{
			Kind: ConditionResourceRejected, Subject: r.Key.String(), Since: r.Rejection.At,
			Text:   fmt.Sprintf("%s of the management server is rejected (%v); %s", r.Key, r.Rejection.Err, meanwhile),
			Remedy: "correct the resource on the management server",
		})
	}
	return out
}

// fileConditions reports the resource files that are not in use as they are.
func (s *Service) fileConditions() []Condition {
	set := s.files.Load()
	if set == nil {
		return nil
	}
	var out []Condition
	for _, b := range set.Bad {
		out = append(out, Condition{
			Kind: ConditionFileBad, Subject: b.File, Since: b.Since,
			Text:   fmt.Sprintf("resource file %s is bad (%v); %s", b.File, b.Err, meanwhile(b)),
			Remedy: "correct the file; lbd check lists every error",
		})
	}
	for _, h := range set.Held {
		out = append(out, Condition{
			Kind: ConditionChangeHeld, Subject: h.Hash, Since: h.Since,
			Text:   fmt.Sprintf("a change of %s is held: %s; the last good version stays in use", fileNames(h), strings.Join(h.Reasons, "; ")),
			Remedy: fmt.Sprintf("correct the files, or permit exactly this change with POST %s", PermitPath(h.Hash)),
		})
	}
	return out
}

// meanwhile says what is in use of a bad file.
func meanwhile(b files.Bad) string {
	switch {
	case b.Kept:
		return "its last good content stays in use"
	case b.Partial:
		return "no earlier content is known: what is valid of it is in use"
	case b.Twice:
		return "the other file's is in use"
	default:
		return "none of its resources are in use"
	}
}
