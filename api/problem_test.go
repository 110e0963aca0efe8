package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
)

// Every code that the contract has leads to a description, for programs and for
// people.
func TestProblemsAreDescribed(t *testing.T) {
	d := start(t, nil)
	doc, err := spec()
	noError(t, err)
	codes := doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	if len(codes) < 20 {
		t.Fatalf("the contract has the codes %v", codes)
	}
	for _, c := range codes {
		code, _ := c.(string)
		w := d.must(200, "GET", "/problems/"+code, "")
		got := decode[api.ProblemType](t, w.Body.Bytes())
		if got.Type != "/problems/"+code || string(got.Code) != code || got.Title == "" || got.GRPCCode == "" || got.Status < 400 ||
			len(got.Means) < 20 || len(got.Fix) < 20 || !strings.HasSuffix(got.Means, ".") || !strings.HasSuffix(got.Fix, ".") {
			t.Errorf("%s: %+v", code, got)
		}
		page := d.must(200, "GET", got.Type, "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
		if !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") || !strings.Contains(page.Body.String(), got.Title) {
			t.Errorf("%s: %s", code, page.Body)
		}
	}
	p, w := d.refused("not_found", "GET", "/problems/nothing", "")
	if w.Code != http.StatusNotFound {
		t.Errorf("an unknown code: %+v", p)
	}
	// The type of a refusal is one of these.
	d.must(200, "GET", p.Type, "")
	if got := d.must(200, "GET", p.Type, "", "Accept: application/json, text/html").Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("what is liked as much as JSON is answered as %s", got)
	}
	d.refused("invalid_argument", "GET", "/problems/blocked?x", "")
}
