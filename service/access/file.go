package access

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/xds/decode/text"
)

// Bounds of an identity file.
const (
	// MaxFileBytes is the maximum size of an identity file.
	MaxFileBytes = 4 << 20
	maxCallers   = 10_000
	maxPatterns  = 1_000
	maxName      = 64
	maxRate      = 1e6 // requests per second
	// Those of the API: a quota can only lower them.
	minTTL   = time.Millisecond
	maxTTL   = 10 * time.Minute
	maxPicks = 1000
)

// file is the content of an identity file (YAML or JSON).
type file struct {
	Quotas       map[string]json.RawMessage `json:"quotas"`
	Tokens       []json.RawMessage          `json:"tokens"`
	Certificates []json.RawMessage          `json:"certificates"`
	UnixPeers    []json.RawMessage          `json:"unix_peers"`
}

// quotaEntry has the limits of each caller that names it. Those that are absent are
// lbd's defaults.
type quotaEntry struct {
	RequestsPerSecond float64 `json:"requests_per_second"`
	Burst             float64 `json:"burst"`
	Bytes             *int64  `json:"bytes"`
	BulkRequests      *int64  `json:"bulk_requests"`
	Streams           *int64  `json:"streams"`
	WaitingPicks      *int64  `json:"waiting_picks"`
	Leases            *int64  `json:"leases"`
	UnknownNames      *int64  `json:"unknown_names"`
	IdempotentLeases  *int64  `json:"idempotent_leases"`
	MaxTTL            *ttl    `json:"max_ttl"`
	MaxPicks          *int    `json:"max_picks"`
}

// ttl is a duration such as 30s.
type ttl time.Duration

// UnmarshalJSON reads the text of a duration.
func (t *ttl) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	*t = ttl(d)
	return err
}

// class returns the quotas as a class of callers.
func (q *quotaEntry) class() (*quota.Class, error) {
	c := &quota.Class{Rate: q.RequestsPerSecond, Burst: q.Burst, Limits: make(map[quota.Resource]int64)}
	if c.Rate < 0 || c.Rate > maxRate || c.Burst < 0 || c.Burst > maxRate {
		return nil, fmt.Errorf("requests_per_second and burst: must be from 0 to %d", int(maxRate))
	}
	if c.Burst > 0 && c.Rate == 0 {
		return nil, errors.New("burst: requires requests_per_second")
	}
	for r, limit := range map[quota.Resource]*int64{
		quota.Bytes: q.Bytes, quota.Bulk: q.BulkRequests, quota.Streams: q.Streams,
		quota.WaitingPicks: q.WaitingPicks, quota.Leases: q.Leases, quota.UnknownNames: q.UnknownNames, quota.IdempotentLeases: q.IdempotentLeases,
	} {
		if limit == nil {
			continue
		}
		if *limit < 0 {
			return nil, fmt.Errorf("%v: must not be negative", r)
		}
		c.Limits[r] = *limit
	}
	if t := q.MaxTTL; t != nil {
		if c.MaxTTL = time.Duration(*t); c.MaxTTL < minTTL || c.MaxTTL > maxTTL {
			return nil, fmt.Errorf("max_ttl: must be from %v to %v", minTTL, maxTTL)
		}
	}
	if n := q.MaxPicks; n != nil {
		if c.MaxPicks = *n; c.MaxPicks < 1 || c.MaxPicks > maxPicks {
			return nil, fmt.Errorf("max_picks: must be from 1 to %d", maxPicks)
		}
	}
	return c, nil
}

// grant is what every kind of entry has.
type grant struct {
	Name     string    `json:"name"`
	Roles    []string  `json:"roles"`
	Clusters []string  `json:"clusters"` // nil only if the field is absent
	Expires  time.Time `json:"expires"`
	Quota    string    `json:"quota"`
}

type tokenEntry struct {
	grant

	SHA256 string `json:"sha256"`
}

type certificateEntry struct {
	grant

	SAN string `json:"san"`
}

type peerEntry struct {
	grant

	UID *uint32 `json:"uid"`
	GID *uint32 `json:"gid"`
}

// entry is a caller and the entry of the file that it comes from.
type entry struct {
	caller *Caller
	source any
	quota  quotaEntry
}

// Parse parses an identity file in YAML or JSON. Its lists are tokens (name,
// sha256), certificates (name, san) and unix_peers (name, uid, gid); each entry
// has roles, and optionally clusters (patterns), expires (RFC 3339) and quota, the name
// of an entry of the map quotas. The error joins those of invalid entries, at most 20.
func Parse(data []byte) (*Identities, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("larger than %d bytes", MaxFileBytes)
	}
	asJSON, err := text.FromYAML(data, nil)
	if errors.Is(err, text.ErrEmpty) {
		return nil, errors.New("the file is empty: it must have tokens, certificates or unix_peers")
	}
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "the body", "the file"))
	}
	r := &reader{
		identities: &Identities{tokens: make(map[[sha256.Size]byte]token), callers: make(map[string]*entry)},
		quotas:     make(map[string]quotaEntry), classes: make(map[string]*quota.Class),
	}
	r.read(asJSON)
	if err := r.problems.err(data); err != nil {
		return nil, err
	}
	return r.identities, nil
}

// reader reads a file.
type reader struct {
	identities *Identities
	quotas     map[string]quotaEntry
	classes    map[string]*quota.Class
	problems   problems
}

func (r *reader) read(asJSON []byte) {
	var f file
	if !r.problems.decode("", "", asJSON, &f) {
		return
	}
	if n := len(f.Tokens) + len(f.Certificates) + len(f.UnixPeers); n > maxCallers {
		r.problems.add("", "%d entries: at most %d are supported", n, maxCallers)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.Quotas)) {
		r.quota(name, f.Quotas[name])
	}
	for n, raw := range f.Tokens {
		var e tokenEntry
		r.entry("tokens", n, raw, &e, &e.grant)
	}
	for n, raw := range f.Certificates {
		var e certificateEntry
		r.entry("certificates", n, raw, &e, &e.grant)
	}
	for n, raw := range f.UnixPeers {
		var e peerEntry
		r.entry("unix_peers", n, raw, &e, &e.grant)
	}
}

func (r *reader) quota(name string, raw []byte) {
	at, label := fmt.Sprintf("quotas[%q]", name), fmt.Sprintf("quotas[%s]: ", fault.Clip(name))
	var q quotaEntry
	var class *quota.Class
	if r.problems.decode(at, label, raw, &q) {
		var err error
		if class, err = q.class(); err != nil {
			r.problems.add(at, "%s%w", label, err)
		}
	}
	r.quotas[name], r.classes[name] = q, class
}

// entry reads an entry of a list, which g is a part of.
func (r *reader) entry(list string, n int, raw []byte, source binder, g *grant) {
	at := fmt.Sprintf("%s[%d]", list, n)
	label := fmt.Sprintf("%s (%s): ", at, fault.Clip(text.Members(raw).Text("name")))
	if !r.problems.decode(at, label, raw, source) {
		return
	}
	c, err := g.caller(r.classes)
	if _, exists := r.identities.callers[g.Name]; err == nil && exists {
		err = errors.New("name: is used by another entry")
	}
	e := &entry{caller: c, source: source, quota: r.quotas[g.Quota]}
	if err == nil {
		err = source.bind(r.identities, e)
	}
	if err != nil {
		r.problems.add(at, "%s%w", label, err)
		return
	}
	r.identities.callers[g.Name] = e
}

// binder is an entry, which adds how its caller is identified.
type binder interface {
	bind(i *Identities, caller *entry) error
}

func (g *grant) caller(quotas map[string]*quota.Class) (*Caller, error) {
	if err := validName(g.Name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if len(g.Roles) == 0 {
		return nil, errors.New("roles: required")
	}
	roles, err := rolesOf(g.Roles)
	if err != nil {
		return nil, fmt.Errorf("roles: %w", err)
	}
	class, ok := quotas[g.Quota]
	if !ok && g.Quota != "" {
		return nil, fmt.Errorf("quota: %q is not in quotas", fault.Clip(g.Quota))
	}
	c := &Caller{Name: g.Name, Roles: roles, Expires: g.Expires, Quota: class, revoked: make(chan struct{})}
	if g.Clusters == nil {
		return c, nil
	}
	if len(g.Clusters) == 0 || len(g.Clusters) > maxPatterns {
		return nil, fmt.Errorf("clusters: must have 1 to %d patterns; without the field, all clusters match", maxPatterns)
	}
	for n, p := range g.Clusters {
		if p == "" || strings.HasPrefix(p, "xds:") {
			return nil, fmt.Errorf("clusters[%d]: must be a name or a pattern, without xds: for targets", n)
		}
	}
	c.patterns = g.Clusters
	return c, nil
}

func (e *tokenEntry) bind(i *Identities, caller *entry) error {
	sum, err := hex.DecodeString(e.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("sha256: must be %d hexadecimal digits, the SHA-256 of the token", 2*sha256.Size)
	}
	key := [sha256.Size]byte(sum)
	if other, ok := i.tokens[key]; ok {
		return fmt.Errorf("sha256: is the same as of %s", other.caller.Name)
	}
	i.tokens[key] = token{caller, key}
	return nil
}

func (e *certificateEntry) bind(i *Identities, caller *entry) error {
	kind, pattern, ok := strings.Cut(e.SAN, ":")
	if !ok || kind != "dns" && kind != "uri" || pattern == "" {
		return errors.New("san: must be dns:PATTERN or uri:PATTERN")
	}
	i.certificates = append(i.certificates, certificate{caller, kind, pattern})
	return nil
}

func (e *peerEntry) bind(i *Identities, caller *entry) error {
	if e.UID == nil && e.GID == nil {
		return errors.New("set uid, gid or both")
	}
	i.peers = append(i.peers, peer{caller, e.UID, e.GID})
	return nil
}

// validName checks a caller's name: events, logs and metrics show it as it is.
func validName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("must have 1 to %d bytes", maxName)
	}
	for _, r := range name {
		if r < '!' || r > '~' || r == '"' || r == '\\' {
			return errors.New("must be printable ASCII without spaces, quotes and backslashes")
		}
	}
	return nil
}
