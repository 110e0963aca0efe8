package access

import (
	"crypto/x509"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/service/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseRoles(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Roles
		err  string
	}{
		{in: "pick", want: Pick},
		{in: "pick+read", want: Pick | Read},
		{in: "read+pick", want: Pick | Read},
		{in: "all", want: All},
		{in: "none"},
		{in: "", err: `unknown role ""`},
		{in: "root", err: `unknown role "root": roles are pick, read, push, admin, metrics, dashboard`},
		{in: "pick,read", err: `"pick,read": join roles with +, such as pick+read`},
		{in: "pick+pick", err: `duplicate role "pick"`},
		{in: "pick+", err: `unknown role ""`},
		{in: "pick+all", err: `unknown role "all"`},
	} {
		got, err := ParseRoles(c.in)
		if got != c.want || !contains(err, c.err) {
			t.Errorf("ParseRoles(%q) = %v, %v; want %v, %q", c.in, got, err, c.want, c.err)
		}
		if c.err == "" {
			if again, err := ParseRoles(got.String()); again != got || err != nil {
				t.Errorf("ParseRoles(%q) = %v, %v; want %v", got.String(), again, err, got)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"orders", "orders", true},
		{"orders", "orders2", false},
		{"orders*", "orders", true},
		{"orders*", "orders/eu", true},
		{"*", "", true},
		{"*orders", "eu-orders", true},
		{"*orders", "orders-eu", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "aXcYb", false},
		{"a*bc", "abbc", true},
		{"ab*ba", "aba", false},
		{"**", "x", true},
		{"", "", true},
		{"", "x", false},
	} {
		if got := match(c.pattern, c.name); got != c.want {
			t.Errorf("match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

// hash is the SHA-256 of "secret".
const hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

func TestParseRejects(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"not YAML":                 {"tokens: [", "line 1"},
		"unknown list":             {"token: []", "line 1: token: unknown field (did you mean tokens?)"},
		"unknown field":            {"tokens: [{name: a, role: [pick]}]", "line 1: tokens[0] (a): role: unknown field (did you mean roles?)"},
		"wrong type":               {"tokens: {}", "line 1: tokens: must be a list of entries (not an object)"},
		"no name":                  {"tokens: [{roles: [pick], sha256: " + hash + "}]", "tokens[0] (): name: must have 1 to 64 bytes"},
		"long name":                {"tokens: [{name: " + strings.Repeat("x", 65) + "}]", "name: must have 1 to 64 bytes"},
		"line break":               {`tokens: [{name: "a\nb"}]`, "printable ASCII"},
		"no roles":                 {"tokens: [{name: a, sha256: " + hash + "}]", "tokens[0] (a): roles: required"},
		"unknown role":             {"tokens: [{name: a, roles: [root], sha256: " + hash + "}]", `tokens[0] (a): roles: unknown role "root"`},
		"token, not a hash":        {"tokens: [{name: a, roles: [pick], sha256: secret}]", "sha256: must be 64 hexadecimal digits"},
		"no patterns":              {"tokens: [{name: a, roles: [pick], clusters: [], sha256: " + hash + "}]", "clusters: must have 1 to 1000 patterns"},
		"empty pattern":            {"tokens: [{name: a, roles: [pick], clusters: [''], sha256: " + hash + "}]", "clusters[0]: must be a name or a pattern"},
		"full target name":         {"tokens: [{name: a, roles: [pick], clusters: ['xds:///a'], sha256: " + hash + "}]", "clusters[0]: must be a name or a pattern"},
		"no value":                 {"tokens: [{name: a, roles: [pick], clusters: , sha256: " + hash + "}]", "clusters: no value: must be a list of names and patterns, such as [orders*]; without the field, all clusters match"},
		"no time":                  {"tokens: [{name: a, roles: [pick], expires: , sha256: " + hash + "}]", "expires: no value: must be a time such as 2027-02-20T15:32:18Z; without the field, the identity does not expire"},
		"duplicate name":           {"tokens: [{name: a, roles: [pick], sha256: " + hash + "}]\nunix_peers: [{name: a, roles: [pick], uid: 1}]", "unix_peers[0] (a): name: is used by another entry"},
		"duplicate token":          {"tokens: [{name: a, roles: [pick], sha256: " + hash + "}, {name: b, roles: [pick], sha256: " + hash + "}]", "tokens[1] (b): sha256: is the same as of a"},
		"kind of SAN":              {"certificates: [{name: a, roles: [pick], san: 'ip:10.0.0.1'}]", "san: must be dns:PATTERN or uri:PATTERN"},
		"no SAN":                   {"certificates: [{name: a, roles: [pick]}]", "san: must be"},
		"no uid":                   {"unix_peers: [{name: a, roles: [pick]}]", "set uid, gid or both"},
		"negative uid":             {"unix_peers: [{name: a, roles: [pick], uid: -1}]", "unix_peers[0] (a): uid: must be a whole number from 0 to 4294967295 (not -1)"},
		"unknown quota":            {"tokens: [{name: a, roles: [pick], quota: x, sha256: " + hash + "}]", `tokens[0] (a): quota: "x" is not in quotas`},
		"negative rate":            {"quotas: {x: {requests_per_second: -1}}", "quotas[x]: requests_per_second and burst: must be from 0 to 1000000"},
		"burst alone":              {"quotas: {x: {burst: 1}}", "quotas[x]: burst: requires requests_per_second"},
		"max_ttl number":           {"quotas: {x: {max_ttl: 30}}", "quotas[x]: max_ttl: must be a duration such as 30s (not 30)"},
		"max_ttl text":             {"quotas: {x: {max_ttl: long}}", `max_ttl: must be a duration such as 30s (not "long")`},
		"max_ttl too long":         {"quotas: {x: {max_ttl: 11m}}", "quotas[x]: max_ttl: must be from 1ms to 10m0s"},
		"max_ttl zero":             {"quotas: {x: {max_ttl: 0s}}", "quotas[x]: max_ttl: must be from 1ms to 10m0s"},
		"max_picks":                {"quotas: {x: {max_picks: 0}}", "quotas[x]: max_picks: must be from 1 to 1000"},
		"max_picks too many":       {"quotas: {x: {max_picks: 1001}}", "quotas[x]: max_picks: must be from 1 to 1000"},
		"negative limit":           {"quotas: {x: {leases: -1}}", "quotas[x]: leases: must not be negative"},
		"wrong time":               {"tokens: [{name: a, roles: [pick], expires: tomorrow}]", `tokens[0] (a): expires: must be a time such as 2027-02-20T15:32:18Z; without the field, the identity does not expire (not "tomorrow")`},
		"empty":                    {"", "the file is empty: it must have tokens, certificates or unix_peers"},
		"comment":                  {"# tokens\n", "the file is empty"},
		"two documents":            {"tokens: []\n---\ntokens: []\n", "the file holds several documents"},
		"no object":                {"[]", "must be an object with some of certificates, quotas, tokens, unix_peers"},
		"entry is a text":          {"tokens:\n- web", "line 2: tokens[0] (): must be an object with some of clusters, expires, name, quota, roles, sha256"},
		"role, not a list":         {"tokens:\n- name: web\n  roles: pick", `line 3: tokens[0] (web): roles: must be a list of roles, such as [pick, read] (not "pick")`},
		"number as a name":         {"tokens: [{name: 1}]", "tokens[0] (): name: must be a text (not 1)"},
		"hash without quotes":      {"tokens: [{name: a, sha256: 1" + strings.Repeat("0", 63) + "}]", "sha256: must be 64 hexadecimal digits in quotes"},
		"fraction":                 {"quotas:\n  x:\n    leases: 1.5", "line 3: quotas[x]: leases: must be a whole number (not 1.5)"},
		"text as a rate":           {"quotas: {x: {burst: many}}", `burst: must be a number (not "many")`},
		"quota is a number":        {"quotas: {x: 1}", "quotas[x]: must be an object with some of bulk_requests, burst,"},
		"line of a semantic error": {"unix_peers:\n- {name: a, roles: [pick], uid: 1}\n- {name: b, roles: [pick]}", "line 3: unix_peers[1] (b): set uid"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.file)); !contains(err, c.want) {
				t.Errorf("Parse: %v; want %q", err, c.want)
			}
		})
	}
	t.Run("every invalid entry is reported", func(t *testing.T) {
		_, err := Parse([]byte("unix_peers: [{name: a, roles: [pick]}, {name: b, uid: 1}]"))
		if !contains(err, "unix_peers[0] (a)") || !contains(err, "unix_peers[1] (b)") {
			t.Error(err)
		}
		_, err = Parse([]byte("unix_peers: [" + strings.Repeat("{name: a}, ", 25) + "]"))
		if !contains(err, "unix_peers[19] (a)") || contains(err, "unix_peers[20]") || !contains(err, "and 5 more") {
			t.Error(err)
		}
	})
}

func TestToken(t *testing.T) {
	i := parse(t, `
tokens:
- {name: web, roles: [pick, read], sha256: `+hash+`, clusters: [orders*, users]}
- {name: old, roles: [pick], expires: 2026-01-02T03:04:05Z, sha256: `+strings.Repeat("a", 64)+`}
`)
	now := time.Now()
	c, err := i.Token("secret", now)
	noError(t, err)
	if c.Name != "web" || c.Roles != Pick|Read || !c.Restricted() || !c.MaySee("orders-eu") || !c.MaySee("users") || c.MaySee("users2") {
		t.Errorf("caller %+v", c)
	}
	for _, token := range []string{"", "Secret", "secret ", strings.Repeat("x", MaxTokenBytes+1)} {
		if _, err := i.Token(token, now); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("Token(%.10q): %v", token, err)
		}
	}
	if _, err := (*Identities)(nil).Token("secret", now); !errors.Is(err, ErrUnknownToken) {
		t.Error(err)
	}
}

func TestQuota(t *testing.T) {
	const file = `
quotas: {batch: {requests_per_second: 10, burst: 20, leases: 100, streams: 0, max_ttl: 90s, max_picks: 20}}
tokens:
- {name: limited, roles: [pick], quota: batch, sha256: ` + hash + `}
- {name: other, roles: [pick], sha256: ` + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + `}
`
	i := parse(t, file)
	limited, other := i.callers["limited"].caller, i.callers["other"].caller
	want := &quota.Class{Rate: 10, Burst: 20, Limits: map[quota.Resource]int64{quota.Leases: 100, quota.Streams: 0}, MaxTTL: 90 * time.Second, MaxPicks: 20}
	if !reflect.DeepEqual(limited.Quota, want) || other.Quota != nil {
		t.Errorf("quotas %+v and %+v", limited.Quota, other.Quota)
	}
	next := parse(t, strings.Replace(file, "leases: 100", "leases: 50", 1))
	next.replace(i)
	if next.callers["other"].caller != other || next.callers["limited"].caller == limited {
		t.Error("a caller whose quota changed was kept, or another was not")
	}
	select {
	case <-limited.Revoked():
	default:
		t.Error("the caller with the old quota is still valid")
	}
}

func TestExpiry(t *testing.T) {
	i := parse(t, "tokens: [{name: a, roles: [pick], expires: 2026-01-02T03:04:05Z, sha256: "+hash+"}]")
	end := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if _, err := i.Token("secret", end.Add(-1)); err != nil {
		t.Error(err)
	}
	_, err := i.Token("secret", end)
	if e, ok := errors.AsType[*ExpiredError](err); !ok || e.Name != "a" || !contains(err, "the identity a expired at 2026-01-02T03:04:05Z") {
		t.Error(err)
	}
}

func TestCertificate(t *testing.T) {
	i := parse(t, `
certificates:
- {name: billing, roles: [pick], san: "uri:spiffe://prod/billing/*"}
- {name: any, roles: [read], san: "dns:*.example.org"}
`)
	uri, err := url.Parse("spiffe://prod/billing/eu")
	noError(t, err)
	for _, c := range []struct {
		cert *x509.Certificate
		want string
	}{
		{&x509.Certificate{URIs: []*url.URL{uri}}, "billing"},
		{&x509.Certificate{DNSNames: []string{"a.example.org"}}, "any"},
		{&x509.Certificate{DNSNames: []string{"a.example.org"}, URIs: []*url.URL{uri}}, "billing"},
		{&x509.Certificate{DNSNames: []string{"spiffe://prod/billing/eu"}}, ""},
		{&x509.Certificate{}, ""},
	} {
		c.cert.NotAfter = time.Now().Add(time.Hour)
		got, err := i.Certificate(c.cert, time.Now())
		unknown := ErrUnknownCertificate
		if len(c.cert.DNSNames)+len(c.cert.URIs) == 0 {
			unknown = ErrNoSAN
		}
		if c.want == "" && !errors.Is(err, unknown) || c.want != "" && (err != nil || got.Name != c.want) {
			t.Errorf("Certificate(%v %v) = %v, %v; want %q", c.cert.DNSNames, c.cert.URIs, got, err, c.want)
		}
		if _, err := i.Certificate(c.cert, time.Now().Add(2*time.Hour)); err == nil {
			t.Errorf("Certificate(%v %v) is valid after its end", c.cert.DNSNames, c.cert.URIs)
		}
	}
}

func TestPeer(t *testing.T) {
	i := parse(t, `
unix_peers:
- {name: root, roles: [admin], uid: 0}
- {name: php, roles: [pick], uid: 33, gid: 33}
- {name: staff, roles: [read], gid: 50}
`)
	for _, c := range []struct {
		uid, gid uint32
		want     string
	}{{0, 7, "root"}, {33, 33, "php"}, {33, 50, "staff"}, {33, 7, ""}} {
		got, err := i.Peer(c.uid, c.gid, time.Now())
		if err != nil || (got == nil) != (c.want == "") || got != nil && got.Name != c.want {
			t.Errorf("Peer(%d, %d) = %v, %v; want %q", c.uid, c.gid, got, err, c.want)
		}
	}
}

func TestNewToken(t *testing.T) {
	token, sum := NewToken()
	i := parse(t, "tokens: [{name: a, roles: [pick], sha256: "+sum+"}]")
	if c, err := i.Token(token, time.Now()); err != nil || c.Name != "a" {
		t.Errorf("Token(%q) = %v, %v", token, c, err)
	}
	if other, _ := NewToken(); other == token || !strings.HasPrefix(token, TokenPrefix) || len(token) != len(TokenPrefix)+43 {
		t.Errorf("tokens %q, %q", token, other)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("tokens: [{name: a, roles: [pick], sha256: " + hash + ", clusters: ['*']}]"))
	f.Add([]byte("certificates: [{name: a, roles: [pick], san: 'uri:x*'}]\nunix_peers: [{name: b, uid: 1, roles: [read]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := Parse(data)
		if err != nil {
			return
		}
		for name, e := range i.callers {
			if e.caller.Name != name || validName(name) != nil || e.caller.Roles == 0 {
				t.Errorf("caller %+v of %q", e.caller, name)
			}
		}
	})
}

func parse(t *testing.T, file string) *Identities {
	t.Helper()
	i, err := Parse([]byte(file))
	noError(t, err)
	return i
}

func contains(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}
