package api_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestDoctor(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	report := decode[doctor.Report](t, d.must(http.StatusOK, "GET", "/v1/doctor", "").Body.Bytes())
	if report.Status != doctor.OK || report.Examined != 0 || report.Version != "test" || len(report.Checks) < 8 {
		t.Errorf("%+v", report)
	}
	report = decode[doctor.Report](t, d.must(http.StatusOK, "GET", "/v1/doctor?cluster=orders&dial=true", "").Body.Bytes())
	if report.Cluster != "orders" || !slices.ContainsFunc(report.Checks, func(c doctor.Check) bool { return c.Check == "breaker" && c.Status == doctor.OK }) {
		t.Errorf("%+v", report)
	}
	report = decode[doctor.Report](t, d.must(http.StatusOK, "GET", "/v1/doctor?cluster=absent", "").Body.Bytes())
	if report.Problems != 1 || !strings.Contains(report.Summary, `cluster "absent" is not known`) {
		t.Errorf("%+v", report)
	}
	for _, query := range []string{"cluster=", "dial=perhaps", "target=shop", "cluster=a&cluster=b", "wait=1s"} {
		d.must(http.StatusBadRequest, "GET", "/v1/doctor?"+query, "")
	}
}

// silent are endpoints that do not answer.
type silent struct{}

func (silent) Reconnect(string) int { return 0 }

func (silent) Try(ctx context.Context, _ lb.Attempt, timeout time.Duration) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestDoctorExaminesOneAtATime: requests wait for each other, for 10 s at most, and picks wait for none.
func TestDoctorExaminesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, func(o *service.Options) {
			o.Dialer, o.Sources.ConnectMode = silent{}, resource.ConnectTCP
			o.Connectors[resource.ConnectTCP] = nil
		})
		addresses := make([]string, 100)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("10.0.0.7:%d", 1000+i)
		}
		d.must(http.StatusCreated, "PUT", orders, assignment("", addresses...))
		begun := time.Now()
		var mu sync.Mutex
		took := map[int][]time.Duration{}
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				w := d.do("GET", "/v1/doctor?cluster=orders&dial=true", "")
				mu.Lock()
				defer mu.Unlock()
				took[w.Code] = append(took[w.Code], time.Since(begun))
			})
		}
		synctest.Wait()
		d.must(http.StatusOK, "GET", "/pick?cluster=orders", "")
		if time.Since(begun) != 0 {
			t.Error("a pick waited")
		}
		group.Wait()
		if len(took[http.StatusOK]) != 2 || len(took[http.StatusServiceUnavailable]) != 1 {
			t.Errorf("answers %v", took)
		}
		for status, list := range took {
			for _, d := range list {
				if d > api.ExamineTime {
					t.Errorf("%d took %v", status, d)
				}
			}
		}
	})
}
