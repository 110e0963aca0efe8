package api_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Whatever a caller of orders* requests, a caller of secret* reads the same and gets the same picks, and no answer shows
// the former an endpoint of the latter. Neither has a resource that names clusters of both.
func TestPatternsSeparateCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startWithCallers(t, "127.0.0.1:8080")
		statuses := map[int]int{}
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			s := &separation{c, t}
			s.begin()
			synctest.Wait()
			before := s.reads()
			for range 6 {
				method, path, body := s.request()
				w := c.as("restricted", method, path, body)
				statuses[w.Code]++
				if strings.Contains(w.Body.String(), "10.2.0.") {
					t.Fatalf("%s %s %s: %d shows an endpoint of others: %s", method, path, body, w.Code, w.Body)
				}
				synctest.Wait()
				after := s.reads()
				for path, was := range before {
					if after[path] != was {
						t.Fatalf("%s %s %s: %d %s\nGET %s: %s\nbefore: %s", method, path, body, w.Code, w.Body, path, after[path], was)
					}
				}
			}
		})
		if !testing.Short() && (statuses[200] < 50 || statuses[201] < 20 || statuses[403] < 50) {
			t.Errorf("answers by status: %v", statuses)
		}
	})
}

type separation struct {
	*callers
	*rapid.T
}

func (s *separation) draw(from ...string) string { return rapid.SampledFrom(from).Draw(s.T, "choice") }

// cluster draws the name of a cluster of one of some families.
func (s *separation) cluster(families ...string) string {
	return s.draw(families...) + s.draw("-1", "-2", "-3")
}

// config draws a Cluster that names clusters of some families.
func (s *separation) config(name string, families ...string) string {
	start := `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"` + name + `",`
	switch s.draw("aggregate", "service name", "plain") {
	case "aggregate":
		return start + aggregateOf(s.cluster(families...), s.cluster(families...))[len(`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster",`):]
	case "service name":
		return start + `"type":"EDS","eds_cluster_config":{"service_name":"` + s.cluster(families...) + `","eds_config":{"ads":{}}}}`
	}
	return start + `"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":` + s.draw("3", "5", "1000") + `}]}}`
}

// begin replaces what is pushed: first by resources that may name everything, so that the history has them.
func (s *separation) begin() {
	all := []string{"orders", "secret"}
	for _, mixed := range []bool{true, false} {
		var resources []string
		for i, family := range all {
			named := all[i : i+1]
			if mixed {
				named = all
			}
			for n := 1; n <= 3; n++ {
				name := fmt.Sprint(family, "-", n)
				if !mixed && s.draw("endpoints", "endpoints", "none") == "endpoints" { // events show those of mixed resources
					resources = append(resources, served(name, fmt.Sprintf("10.%d.0.%d", i+1, n)))
				}
				if s.draw("config", "none") == "config" {
					resources = append(resources, s.config(name, named...))
				}
			}
			resources = append(resources, target(family+"-shop", s.cluster(named...), s.cluster(named...)))
		}
		if w := s.as("everything", "PUT", "/v1/snapshot?allow_empty=true", `{"resources":[`+strings.Join(resources, ",")+`]}`); w.Code != 200 {
			s.Fatal(w.Code, w.Body)
		}
	}
	s.as("everything", "DELETE", "/v1/leases?older_than=0s", "")
	s.as("other", "POST", "/pick?ttl=10m&cluster="+s.cluster("secret"), "")
}

// request draws a request.
func (s *separation) request() (method, path, body string) {
	name, query := s.cluster("orders", "orders", "secret"), s.draw("?dry_run=true", "?allow_empty=true", "?allow_empty=true&max_shift=100%25", "")
	of := "/v1/clusters/" + name
	switch s.draw("config", "config", "config", "endpoints", "endpoint", "delete", "overlay", "target", "snapshot", "restore", "restore", "pick", "pick", "pick", "end", "read", "read") {
	case "config":
		return "PUT", of + "/config" + query, s.config(name, "orders", "orders", "secret")
	case "endpoints":
		return "PUT", of + "/endpoints" + query, served(name, "10.1.0."+s.draw("1", "9"))
	case "endpoint":
		return s.draw("PUT", "DELETE"), of + "/endpoints/10.1.0." + s.draw("1:80", "2:80") + strings.Replace(query, "?dry_run=true", "", 1), ""
	case "delete":
		return "DELETE", of + s.draw("/config", "/endpoints") + strings.Replace(query, "?allow_empty=true", "", 1), ""
	case "overlay":
		return "PUT", of + "/overlays/o" + query, `{"kind":` + s.draw(`"hold_ejections"}`, `"drain","endpoint":"10.1.0.1:80"}`)
	case "target":
		return s.draw("PUT", "DELETE"), "/v1/targets/" + s.draw("orders-shop", "secret-shop", "orders-1") + strings.Replace(query, "?allow_empty=true", "", 1), ""
	case "snapshot":
		return s.draw("PUT", "POST"), "/v1/snapshot" + query, `{"resources":[` + s.config(name, "orders", "secret") + `]}`
	case "restore":
		part := s.draw("cluster="+name, "resource=Cluster/"+name, "resource=ClusterLoadAssignment/"+name, "resource=Listener/orders-shop", "resource=Listener/secret-shop", "all=true")
		return "POST", fmt.Sprintf("/v1/history/%d/restore?%s&%s", s.index(), part, strings.TrimPrefix(query, "?")), ""
	case "pick":
		return s.draw("GET", "POST"), "/pick?n=5&wait=0&" + s.draw("cluster="+name, "target=orders-shop", "target=secret-shop", "explain=true&cluster="+name), ""
	case "end":
		return "DELETE", "/v1/leases?" + s.draw("cluster="+name, "older_than=0s"), ""
	}
	return "GET", s.draw("/v1/clusters", of, of+"/endpoints?view=effective", of+"/config?view=source", "/v1/targets", "/v1/targets/orders-shop", "/v1/snapshot", "/v1/leases", "/v1/history",
		fmt.Sprintf("/v1/history/%d/diff?cluster=%s&against=now", s.index(), name), "/v1/doctor", "/v1/doctor?cluster="+name, "/v1/events", "/metrics", "/metrics/endpoints", "/v1/overlays"), ""
}

// index draws an index of the last changes.
func (s *separation) index() int {
	var last int
	if _, err := fmt.Sscan(s.as("everything", "GET", "/v1/daemon", "").Header().Get("Lbd-Index"), &last); err != nil {
		s.Fatal(err)
	}
	return max(1, last-rapid.IntRange(0, 5).Draw(s.T, "age"))
}

var changing = regexp.MustCompile(`"(generation|picks)":\d+,?`)

// reads returns what the caller of secret* reads, and whether it gets picks.
func (s *separation) reads() map[string]string {
	out := map[string]string{}
	read := func(path string, what func(*httptest.ResponseRecorder) string) {
		out[path] = what(s.as("other", "GET", path, ""))
	}
	body := func(w *httptest.ResponseRecorder) string {
		return fmt.Sprint(w.Code, changing.ReplaceAllString(w.Body.String(), ""))
	}
	picked := func(w *httptest.ResponseRecorder) string {
		return fmt.Sprint(w.Code, strings.Contains(w.Body.String(), "10.2.0."), strings.Contains(w.Body.String(), "10.1.0."))
	}
	for n := 1; n <= 3; n++ {
		of := fmt.Sprint("/v1/clusters/secret-", n)
		read(of, body)
		read(of+"/endpoints?view=effective", body)
		read(of+"/config?view=effective", body)
		read(fmt.Sprint("/pick?wait=0&cluster=secret-", n), picked)
	}
	for _, path := range []string{"/v1/clusters", "/v1/snapshot", "/v1/leases", "/v1/overlays", "/v1/targets", "/v1/targets/secret-shop"} {
		read(path, body)
	}
	read("/pick?wait=0&target=secret-shop", picked)
	return out
}
