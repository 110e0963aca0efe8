package api_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// unread is a store that may not have been read.
type unread struct {
	*file.Store
	loaded atomic.Bool
}

func (u *unread) Loaded() bool { return u.loaded.Load() }

func (u *unread) Err() error {
	if u.loaded.Load() {
		return nil
	}
	return fmt.Errorf("%w: etcd did not respond", store.ErrUnavailable)
}

// While it is not known what is pushed, lbd does not say that something does not exist.
func TestUnreadStore(t *testing.T) {
	d := &daemon{tb: t}
	dir := t.TempDir()
	servicetest.Must(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(bundle("a")), 0o600))
	var shared *unread
	d.service, _ = servicetest.Start(t, "", nil, func(c *sources.Connections) {
		shared = &unread{Store: c.Store.(*file.Store)} //nolint:errcheck // as servicetest opens it
		*c = watched(t, dir)
		c.Store = shared
	})
	d.handler = d.serve(func(*api.Options) {})
	d.must(http.StatusOK, "GET", "/pick?cluster=a", "") // it does not depend on the store
	for _, tt := range []struct{ method, target string }{
		{"GET", "/pick?cluster=orders"},
		{"GET", "/pick?target=shop"},
		{"POST", "/pick?cluster=orders"},
		{"GET", "/pick?cluster=orders&explain"},
		{"GET", "/v1/clusters/orders"},
		{"GET", "/v1/targets/shop"},
		{"GET", orders},
		{"GET", "/v1/clusters/orders/config"},
		{"GET", "/v1/snapshot"},
		{"GET", "/v1/clusters/orders/history"},
		{"HEAD", "/v1/clusters/orders/watch"},
	} {
		if tt.method == "HEAD" {
			if w := d.do(tt.method, tt.target, ""); w.Code != http.StatusServiceUnavailable {
				t.Errorf("%s %s: %d", tt.method, tt.target, w.Code)
			}
			continue
		}
		p, w := d.refused(fault.StoreUnavailable, tt.method, tt.target, "")
		if w.Header().Get("Retry-After") != "1" || !strings.HasSuffix(p.Detail, "there is no local copy: the store is unavailable: etcd did not respond") {
			t.Errorf("%s %s: %s", tt.method, tt.target, w.Body)
		}
		if p.Cluster+p.Target == "" && strings.HasPrefix(tt.target, "/pick") {
			t.Errorf("%s %s: %+v", tt.method, tt.target, p)
		}
	}
	for target, code := range map[string]fault.Code{"/v1/leases/x": fault.UnknownLease, "/pick?cluster=": fault.InvalidArgument} {
		d.refused(code, "GET", target, "")
	}
	w := d.must(http.StatusServiceUnavailable, "GET", "/readyz?verbose", "")
	if !strings.HasPrefix(w.Body.String(), "[-]store: what is pushed is not known yet, because it was not read from etcd") {
		t.Error(w.Body)
	}
	shared.loaded.Store(true)
	d.refused(fault.UnknownCluster, "GET", "/pick?cluster=orders", "")
	d.refused(fault.UnknownTarget, "GET", "/pick?target=shop", "")
	d.must(http.StatusOK, "GET", "/v1/snapshot", "")
	d.must(http.StatusOK, "GET", "/readyz?verbose", "")
}
