package accesslog

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPath(t *testing.T) {
	for in, want := range map[string]string{
		"/pick?cluster=orders&n=3":                             "/pick?cluster=orders&n=3",
		"/pick?cluster=orders&hash=alice&header.authorization": "/pick?cluster=orders&hash=…&…",
		"/pick?target=shop&header.authorization=Bearer%20x":    "/pick?target=shop&header.authorization=…",
		"/pick?&cluster=a&&explain":                            "/pick?cluster=a&explain",
		"/v1/clusters?token=secret":                            "/v1/clusters?token=…",
		"/v1/clusters?secret":                                  "/v1/clusters?…",
		"/v1/leases":                                           "/v1/leases",
		"/v1/leases?after=4VZABCDEFGH":                         "/v1/leases?after=…",
		"/v1/leases/done":                                      "/v1/leases/done",
		"/v1/leases/4VZABCDEFGH":                               "/v1/leases/4VZABC…",
		"/v1/leases/4VZABCDEFGH/renew?ttl=5s":                  "/v1/leases/4VZABC…/renew?ttl=5s",
		"/v1/clusters/a%2Fb/endpoints":                         "/v1/clusters/a%2Fb/endpoints",
	} {
		u, err := url.Parse(in)
		noError(t, err)
		if got := Path(u); got != want {
			t.Errorf("%s: %s; want %s", in, got, want)
		}
	}
	for _, long := range []string{"/" + strings.Repeat("x", 2*maxPath), "/?" + strings.Repeat("a=b&", 2*maxPath)} {
		u, err := url.Parse(long)
		noError(t, err)
		if got := Path(u); len(got) > maxPath+len("…") || !strings.HasSuffix(got, "…") || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %s", len(got), got)
		}
	}
}

// blocked writes nothing until it is released.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// A file that is blocked delays no request.
func TestBlockedLogDropsEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(blocked)
		l, err := Open("-", out, slog.New(slog.DiscardHandler))
		noError(t, err)
		l.Write(new(Entry))
		synctest.Wait() // the writer has it
		start := time.Now()
		for range QueueLength + 7 {
			l.Write(new(Entry))
		}
		if n := l.Dropped(); n != 7 || time.Since(start) != 0 {
			t.Errorf("%d dropped after %v", n, time.Since(start))
		}
		close(out)
		if err := l.Close(); err != nil || l.Written() != QueueLength+1 || l.Failed() != 0 {
			t.Errorf("%v, %d written, %d failed", err, l.Written(), l.Failed())
		}
	})
}
