package api_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
)

func TestHistory(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	d.must(http.StatusOK, "PUT", orders, assignment("", "10.0.0.8:80"))
	list := decode[api.ChangeList](t, d.must(http.StatusOK, "GET", "/v1/history", "").Body.Bytes())
	if len(list.Changes) < 2 || list.Oldest != 0 || list.Next != 0 {
		t.Fatalf("%+v", list)
	}
	d.must(http.StatusOK, "GET", "/v1/history/1", "")
	d.must(http.StatusOK, "GET", "/v1/history/0/diff?against=now", "")
	for _, tt := range []struct {
		code         fault.Code
		method, path string
	}{
		{fault.UnknownChange, "GET", "/v1/history/99"},
		{fault.InvalidArgument, "GET", "/v1/history/-1"},
		{fault.InvalidArgument, "GET", "/v1/history?limit=0"},
		{fault.InvalidArgument, "GET", "/v1/history/1/diff?against=then"},
		{fault.InvalidArgument, "GET", "/v1/history/1/diff?resource=orders"},
		{fault.InvalidArgument, "GET", "/v1/history/1/diff?resource=Secured/orders"},
		{fault.InvalidArgument, "GET", "/v1/history/1/diff?resource=Cluster/orders&cluster=orders"},
		{fault.UnknownChange, "GET", "/v1/history/99/diff"},
		{fault.InvalidArgument, "POST", "/v1/history/1/restore"},
		{fault.InvalidArgument, "POST", "/v1/history/1/restore?all=true&cluster=orders"},
		{fault.UnknownChange, "POST", "/v1/history/99/restore?all=true"},
	} {
		d.refused(tt.code, tt.method, tt.path, "")
	}
}

// TestMessage: what a caller says about a change is in the history, or the change is refused.
func TestMessage(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	for _, tt := range []struct {
		message, want string
	}{
		{" to zone b ", "to zone b"},
		{"é", "é"},
		{strings.Repeat("x", 500), strings.Repeat("x", 500)},
		{strings.Repeat("x", 501), "refused"},
		{"a\tb", "refused"},
		{"\xff", "refused"},
	} {
		host := string(rune('a' + len(tt.message)%20))
		w := d.do("PUT", orders, assignment("", host+":80"), "Lbd-Message: "+tt.message)
		if tt.want == "refused" {
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Lbd-Message") {
				t.Errorf("%q: %d %s", tt.message, w.Code, w.Body)
			}
			continue
		}
		list := decode[api.ChangeList](t, d.must(http.StatusOK, "GET", "/v1/history?limit=1", "").Body.Bytes())
		if w.Code >= 300 || list.Changes[0].Message != tt.want || list.Changes[0].Address == "" {
			t.Errorf("%q: %d, %+v", tt.message, w.Code, list.Changes)
		}
	}
}

// TestRestoreOfSomeClusters: a caller with clusters restores these, on the condition that what it sees is
// unchanged, and no others.
func TestRestoreOfSomeClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := startWithCanary(t)
		snapshot := c.as("restricted", "GET", "/v1/snapshot", "")
		tag := "If-Match: " + snapshot.Header().Get("ETag")
		if w := c.as("restricted", "POST", "/v1/history/0/restore?cluster=orders-eu", "", tag); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := c.as("restricted", "POST", "/v1/history/1/restore?cluster=orders-eu", "", tag); w.Code != http.StatusPreconditionFailed {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for _, query := range []string{"all=true", "cluster=" + canary, "resource=ClusterLoadAssignment/" + canary} {
			if w := c.as("restricted", "POST", "/v1/history/1/restore?"+query, ""); w.Code != http.StatusForbidden {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
		}
	})
}
