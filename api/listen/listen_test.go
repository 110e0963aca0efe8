package listen

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/access"
)

func TestParse(t *testing.T) {
	pick, none := access.Pick, access.Roles(0)
	for _, c := range []struct {
		in   []string
		want []Spec
		err  string
	}{
		{in: nil},
		{in: []string{"127.0.0.1:8080"}, want: []Spec{{Address: "127.0.0.1:8080", Mode: 0o660, Roles: access.All}}},
		{in: []string{"127.0.0.1:1,[::1]:2"}, want: []Spec{{Address: "127.0.0.1:1", Mode: 0o660, Roles: access.All}, {Address: "[::1]:2", Mode: 0o660, Roles: access.All}}},
		{in: []string{"0.0.0.0:8443,tls,roles=pick"}, want: []Spec{{Address: "0.0.0.0:8443", TLS: true, Mode: 0o660, Roles: pick}}},
		{in: []string{"unix:/run/lbd.sock", "mode=0600", "roles=pick+read", ":9090", "anonymous=none"}, want: []Spec{
			{Address: "unix:/run/lbd.sock", Mode: 0o600, Roles: access.Pick | access.Read},
			{Address: ":9090", Mode: 0o660, Roles: access.All, Anonymous: &none},
		}},
		{in: []string{"unix:/a=b"}, want: []Spec{{Address: "unix:/a=b", Mode: 0o660, Roles: access.All}}},
		{in: []string{"tls"}, err: `"tls": must be host:port or unix:PATH; options come after it`},
		{in: []string{"8080"}, err: `"8080": must be host:port or unix:PATH`},
		{in: []string{":1,tsl"}, err: `:1: "tsl": must be host:port or unix:PATH, or an option: tls, mode=MODE, roles=ROLES, anonymous=ROLES`},
		{in: []string{":1,tls=yes"}, err: "or an option"},
		{in: []string{":1,roles=push,read"}, err: `:1: "read": join roles with +, such as roles=pick+read`},
		{in: []string{"unix:/a,anonymous=push+read,roles=pick+read"}, err: `unix:/a: "anonymous=read+push": the listener lacks push: it has the roles pick+read`},
		{in: []string{"unix:/a,anonymous=all,roles=pick", ":2"}, err: `unix:/a: "anonymous=all": the listener lacks`},
		{in: []string{":1,tls,tls"}, err: "duplicate option"},
		{in: []string{":1,roles=pick,roles=read"}, err: "duplicate option"},
		{in: []string{":1,roles=root"}, err: `unknown role "root"`},
		{in: []string{":1,anonymous="}, err: `unknown role ""`},
		{in: []string{":1,mode=0600"}, err: "only unix sockets have a mode"},
		{in: []string{"unix:/a,mode=9"}, err: "must be an octal file mode"},
		{in: []string{"unix:/a,mode=1777"}, err: "must be an octal file mode"},
		{in: []string{"unix:/a,tls"}, err: "unix sockets do not support TLS"},
		{in: []string{"unix:"}, err: "unix: must be followed by a path"},
		{in: []string{"::1"}, err: "must be host:port or unix:PATH"},
		{in: []string{":65536"}, err: "port \"65536\": must be from 0 to 65535"},
		{in: []string{":-1"}, err: "must be from 0 to 65535"},
		{in: []string{""}, err: "must be host:port"},
	} {
		got, err := Parse(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("Parse(%q): %v; want %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || len(got) != len(c.want) {
			t.Errorf("Parse(%q) = %+v, %v", c.in, got, err)
			continue
		}
		for i := range got {
			g, w := got[i], c.want[i]
			if (g.Anonymous == nil) != (w.Anonymous == nil) || g.Anonymous != nil && *g.Anonymous != *w.Anonymous {
				t.Errorf("Parse(%q): anonymous %v; want %v", c.in, g.Anonymous, w.Anonymous)
			}
			g.Anonymous, w.Anonymous = nil, nil
			if g != w {
				t.Errorf("Parse(%q): %+v; want %+v", c.in, g, w)
			}
		}
	}
}

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		spec                 string
		identities, insecure bool
		roles, anonymous     string
		host                 bool
		limited              string
	}{
		{spec: "127.0.0.1:1", roles: "all", anonymous: "all", host: true, limited: "none"},
		{spec: "[::1]:1", roles: "all", anonymous: "all", host: true, limited: "none"},
		{spec: "[::ffff:127.0.0.1]:1", roles: "all", anonymous: "all", host: true, limited: "none"},
		{spec: "localhost:1", roles: "all", anonymous: "all", host: true, limited: "none"},
		{spec: "unix:/a", roles: "all", anonymous: "all", limited: "none"},
		{spec: "127.0.0.1:1", identities: true, roles: "all", anonymous: "none", limited: "none"},
		{spec: "unix:/a", identities: true, roles: "all", anonymous: "none", limited: "none"},
		{spec: "unix:/a,roles=pick+read,anonymous=pick", identities: true, roles: "pick+read", anonymous: "pick", limited: "none"},
		{spec: "127.0.0.1:1,anonymous=metrics", identities: true, roles: "all", anonymous: "metrics", host: true, limited: "none"},
		// Beyond loopback, TLS and identity are required for more than picks and metrics.
		{spec: "0.0.0.0:1", roles: "pick+metrics", anonymous: "pick+metrics", host: true, limited: "read+push+admin+dashboard"},
		{spec: ":1", roles: "pick+metrics", anonymous: "pick+metrics", host: true, limited: "read+push+admin+dashboard"},
		{spec: "example.org:1", roles: "pick+metrics", anonymous: "pick+metrics", host: true, limited: "read+push+admin+dashboard"},
		{spec: ":1,roles=push+pick", roles: "pick", anonymous: "pick", host: true, limited: "push"},
		{spec: ":1,roles=metrics", roles: "metrics", anonymous: "metrics", host: true, limited: "none"},
		{spec: ":1", identities: true, roles: "pick+metrics", anonymous: "none", limited: "read+push+admin+dashboard"},
		{spec: ":1,tls", roles: "all", anonymous: "pick+metrics", host: true, limited: "read+push+admin+dashboard"},
		{spec: ":1,tls", identities: true, roles: "all", anonymous: "none", limited: "none"},
		{spec: ":1,tls,anonymous=pick+push", identities: true, roles: "all", anonymous: "pick", host: true, limited: "push"},
		{spec: ":1", insecure: true, roles: "all", anonymous: "all", host: true, limited: "none"},
		{spec: ":1,roles=push", insecure: true, roles: "push", anonymous: "push", host: true, limited: "none"},
	} {
		spec := parse(t, c.spec)
		p := spec.Policy(c.identities, c.insecure)
		if p.Roles.String() != c.roles || p.Anonymous.String() != c.anonymous || p.ChecksHost != c.host || p.Limited.String() != c.limited {
			t.Errorf("%s, identities %v, insecure %v: roles %v, anonymous %v, checks host %v, limited %v; want %s, %s, %v, %s", c.spec,
				c.identities, c.insecure, p.Roles, p.Anonymous, p.ChecksHost, p.Limited, c.roles, c.anonymous, c.host, c.limited)
		}
		warns := c.limited != "none" || c.insecure
		if got := spec.Warning(p, c.insecure); (got != "") != warns {
			t.Errorf("%s: warning %q", c.spec, got)
		}
	}
}

func TestHosts(t *testing.T) {
	h, err := NewHosts([]string{"lbd.example.org", "*.svc.cluster.local", "LBD."})
	noError(t, err)
	for host, want := range map[string]bool{
		"": true, "localhost": true, "localhost:8080": true, "LOCALHOST": true, "localhost.": true,
		"127.0.0.1": true, "10.1.2.3:80": true, "[::1]:8080": true, "[::1]": true, "::1": true, "[fe80::1%eth0]:1": true,
		"lbd.example.org": true, "lbd.example.org:1": true, "lbd": true, "LBD:1": true,
		"a.svc.cluster.local": true, "a.b.svc.cluster.local:1": true, "svc.cluster.local": false,
		"attacker.example": false, "127.0.0.1.nip.io": false, "localhost.attacker.example": false,
		"attacker.example:8080": false, "0x7f000001": false, "2130706433": false, "x.lbd.example.org": false,
		"localhost:8080:1": false, "a@localhost": false, "localhost/": false,
	} {
		if got := h.Allow(host); got != want {
			t.Errorf("Allow(%q) = %v", host, got)
		}
	}
	for _, name := range []string{"", "*", "*.", "a:1", "a/b", "a*b", "*.*.a"} {
		if _, err := NewHosts([]string{name}); err == nil {
			t.Errorf("NewHosts(%q) is no error", name)
		}
	}
}
