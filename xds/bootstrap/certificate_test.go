package bootstrap

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// provider returns a provider with all three files of dir.
func provider(t *testing.T, dir, interval string, logger *slog.Logger) *CertificateProvider {
	t.Helper()
	c, err := Parse([]byte(`{`+plainServers+`, `+plainNode+`, "certificate_providers": {"default": {"plugin_name": "file_watcher", "config": {
		"certificate_file": `+quote(filepath.Join(dir, "cert.pem"))+`, "private_key_file": `+quote(filepath.Join(dir, "key.pem"))+`,
		"ca_certificate_file": `+quote(filepath.Join(dir, "ca.pem"))+interval+`}}}}`), Options{Logger: logger})
	noError(t, err)
	return c.CertificateProviders["default"]
}

// names returns the name in the certificate, and whether a is trusted.
func names(t *testing.T, p *CertificateProvider, a certificateAuthority) (name string, trusted bool) {
	t.Helper()
	identity, roots, err := p.Certificates()
	noError(t, err)
	return identity[0].Leaf.Subject.CommonName, roots.Equal(a.pool())
}

// Instances describes each certificate provider; a nil Config has none.
func TestInstances(t *testing.T) {
	dir := t.TempDir()
	newCertificateAuthority(t, "a").write(t, dir, "a")
	pair := `"certificate_file": ` + quote(filepath.Join(dir, "cert.pem")) + `, "private_key_file": ` + quote(filepath.Join(dir, "key.pem"))
	ca := `"ca_certificate_file": ` + quote(filepath.Join(dir, "ca.pem"))
	var providers []string
	for name, config := range map[string]string{"pair": pair, "ca": ca, "both": pair + ", " + ca} {
		providers = append(providers, quote(name)+`: {"plugin_name": "file_watcher", "config": {`+config+`}}`)
	}
	c, err := Parse([]byte(`{`+plainServers+`, `+plainNode+`, "certificate_providers": {`+strings.Join(providers, ", ")+`}}`), Options{})
	noError(t, err)
	for name, want := range map[string][3]bool{
		"pair": {false, true, true}, "ca": {true, false, true}, "both": {true, true, true}, "x": {},
	} {
		if roots, identity, ok := c.Instances()(name); [3]bool{roots, identity, ok} != want {
			t.Errorf("%s: roots %t, identity %t, exists %t; want %v", name, roots, identity, ok, want)
		}
	}
	c = nil
	if c.Instances() != nil {
		t.Error("a nil Config has instances")
	}
}

// A warning names a world-readable secret, its mode and the place in the bootstrap.
func TestWorldReadableSecrets(t *testing.T) {
	dir := t.TempDir()
	newCertificateAuthority(t, "a").write(t, dir, "a")
	at := func(name string) string { return filepath.Join(dir, name) }
	lay(t, at("token"), []byte("a.b.c"))
	pair := `"certificate_file": ` + quote(at("cert.pem")) + `, "private_key_file": ` + quote(at("key.pem"))
	body := `{` + plainNode + `,
		"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "tls", "config": {` + pair + `}}],
			"call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": ` + quote(at("token")) + `}}]}],
		"certificate_providers": {"mesh": {"plugin_name": "file_watcher", "config": {` + pair + `}}}}`
	for mode, want := range map[os.FileMode][]string{
		0o600: nil, 0o640: nil, 0o660: nil,
		0o644: {
			"certificate_providers.mesh.config.private_key_file: " + at("key.pem"),
			"xds_servers[0].call_creds[0].config.jwt_token_file: " + at("token"),
			"xds_servers[0].channel_creds[0].config.private_key_file: " + at("key.pem"),
		},
	} {
		for _, secret := range []string{"key.pem", "token"} {
			noError(t, os.Chmod(at(secret), mode))
		}
		if err := os.Chmod(at("cert.pem"), 0o644); err != nil { // no secret
			t.Fatal(err)
		}
		c, err := Parse([]byte(body), Options{})
		noError(t, err)
		var got []string
		for _, w := range c.Warnings {
			file, _, ok := strings.Cut(w.Field+": "+w.Reason, " has a secret and every user can read it (mode 0644): ")
			if !ok || w.Line == 0 {
				t.Errorf("mode %o: warning %+v", mode, w)
			}
			got = append(got, file)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("mode %o: warnings %q, want %q", mode, got, want)
		}
	}
}

// Files are read again exactly after the interval.
func TestRefreshInterval(t *testing.T) {
	for interval, want := range map[string]time.Duration{
		``:                                   10 * time.Minute,
		`, "refresh_interval": "0s"`:         time.Hour,
		`, "refresh_interval": "900s"`:       15 * time.Minute,
		`, "refresh_interval": "0.5s"`:       500 * time.Millisecond,
		`, "refresh_interval": null`:         10 * time.Minute,
		`, "refresh_interval": "315576000s"`: 87660 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			a, b := newCertificateAuthority(t, "a"), newCertificateAuthority(t, "b")
			a.write(t, dir, "first")
			p := provider(t, dir, interval, nil)
			b.write(t, dir, "second")
			time.Sleep(want - time.Nanosecond)
			if name, trusted := names(t, p, a); name != "first" || !trusted {
				t.Errorf("%s: after %v the files are read again", interval, want-time.Nanosecond)
			}
			time.Sleep(time.Nanosecond)
			if name, trusted := names(t, p, b); name != "second" || !trusted {
				t.Errorf("%s: after %v the files are not read again", interval, want)
			}
		})
	}
}

// The last good certificates stay in use, and each error is logged once.
func TestInvalidCertificatesAfterValidOnes(t *testing.T) {
	dir := t.TempDir()
	a, b := newCertificateAuthority(t, "a"), newCertificateAuthority(t, "b")
	a.write(t, dir, "first")
	var log bytes.Buffer
	p := provider(t, dir, `, "refresh_interval": "0.000000001s"`, slog.New(slog.NewTextHandler(&log, nil)))

	b.write(t, dir, "second")
	lay(t, filepath.Join(dir, "key.pem"), []byte("invalid"))
	for range 3 {
		if name, trusted := names(t, p, b); name != "first" || !trusted {
			t.Error("the certificate is not kept, or the roots are not new")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), filepath.Join(dir, "key.pem")) {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}

	b.write(t, dir, "second")
	if name, _ := names(t, p, b); name != "second" {
		t.Errorf("got %q", name)
	}
	log.Reset()
	lay(t, filepath.Join(dir, "ca.pem"), nil)
	if _, trusted := names(t, p, b); !trusted || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("trusted %t, the log:\n%s", trusted, log.String())
	}
}
