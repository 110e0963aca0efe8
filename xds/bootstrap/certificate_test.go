package bootstrap

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// provider is the one of a bootstrap with all three files of dir.
func provider(t *testing.T, dir, interval string, logger *slog.Logger) *CertificateProvider {
	t.Helper()
	c, err := Parse([]byte(`{`+plainServers+`, `+plainNode+`, "certificate_providers": {"default": {"plugin_name": "file_watcher", "config": {
		"certificate_file": `+quote(filepath.Join(dir, "cert.pem"))+`, "private_key_file": `+quote(filepath.Join(dir, "key.pem"))+`,
		"ca_certificate_file": `+quote(filepath.Join(dir, "ca.pem"))+interval+`}}}}`), Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	return c.CertificateProviders["default"]
}

// names are whose certificate is shown, and whether a's is trusted.
func names(t *testing.T, p *CertificateProvider, a certificateAuthority) (name string, trusted bool) {
	t.Helper()
	identity, roots, err := p.Certificates()
	if err != nil {
		t.Fatal(err)
	}
	return identity[0].Leaf.Subject.CommonName, roots.Equal(a.pool())
}

// TestRefreshInterval looks right before and right after files are to be read again.
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

// TestBadCertificatesAfterGoodOnes keeps what is good, and tells once of each thing
// that is not.
func TestBadCertificatesAfterGoodOnes(t *testing.T) {
	dir := t.TempDir()
	a, b := newCertificateAuthority(t, "a"), newCertificateAuthority(t, "b")
	a.write(t, dir, "first")
	var log bytes.Buffer
	p := provider(t, dir, `, "refresh_interval": "0.000000001s"`, slog.New(slog.NewTextHandler(&log, nil)))

	b.write(t, dir, "second")
	lay(t, filepath.Join(dir, "key.pem"), []byte("torn"))
	for range 3 {
		if name, trusted := names(t, p, b); name != "first" || !trusted {
			t.Error("the certificate is not kept, or the roots are not new")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), filepath.Join(dir, "key.pem")) {
		t.Errorf("told %d times:\n%s", n, log.String())
	}

	b.write(t, dir, "second")
	if name, _ := names(t, p, b); name != "second" {
		t.Errorf("got %q", name)
	}
	log.Reset()
	lay(t, filepath.Join(dir, "ca.pem"), nil)
	if _, trusted := names(t, p, b); !trusted || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("trusted %t, told:\n%s", trusted, log.String())
	}
}
