package listen

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A certificate that is not yet valid is used once it is valid, and one that has expired is logged once.
func TestCertificateThatIsNotValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		now := time.Now()
		a.sign("server", &x509.Certificate{})
		a.sign("early", &x509.Certificate{NotBefore: now.Add(time.Minute), NotAfter: now.Add(2 * time.Hour)})
		a.sign("expired", &x509.Certificate{NotAfter: now.Add(-time.Minute)})
		f := TLSFiles{Certificate: a.path("live.pem"), Key: a.path("live.key")}
		rotate := func(name string) {
			for _, kind := range []string{".pem", ".key"} {
				content, err := os.ReadFile(a.path(name + kind))
				noError(t, errors.Join(err, os.WriteFile(a.path("live"+kind), content, 0o600)))
			}
		}
		var log lockedBuffer
		const warning = "files in use are not valid"
		rotate("server")
		r, err := f.Open(slog.New(slog.NewTextHandler(&log, nil)), nil)
		noError(t, err)
		name := func() string { return r.Current().Certificates[0].Leaf.Subject.CommonName }
		rotate("early")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, err := r.Err(); err == nil || !strings.Contains(err.Error(), "the certificate is not valid before 2000-01-01T00:01:00Z") || name() != "server" {
			t.Errorf("before it is valid: %v, %s is in use", err, name())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := r.Err(); err != nil || name() != "early" || strings.Contains(log.String(), warning) {
			t.Errorf("when it is valid: %v, %s is in use; log %s", err, name(), log.String())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if strings.Count(log.String(), warning) != 1 || strings.Count(log.String(), "the certificate expired at 2000-01-01T02:00:00Z") != 1 {
			t.Errorf("when it has expired: %s", log.String())
		}
		r.Close()
		for _, name := range []string{"expired", "future"} {
			a.sign("future", &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)})
			rotate(name)
			var log lockedBuffer
			r, err := f.Open(slog.New(slog.NewTextHandler(&log, nil)), nil)
			noError(t, err)
			if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), warning) {
				t.Errorf("at start, %s: %s", name, log.String())
			}
			r.Close()
		}
	})
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}
