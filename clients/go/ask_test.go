package lbdclient

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAskedQuery(t *testing.T) {
	request, err := http.NewRequest(http.MethodGet, "http://x.lbd/a%2Fb/c?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"X-User": {"a&b"}, "Tenant": {"1", "2"}, "Cookie": {"sid=7"}}
	for _, c := range []struct {
		host Host
		ask  *Ask
		want string
	}{
		{Host{}, nil, ""},
		{Host{Hash: "header:x-user"}, nil, "&hash=a%26b"},
		{Host{Hash: "header:absent"}, nil, ""},
		{Host{Hash: "cookie:sid"}, nil, "&hash=7"},
		{Host{Hash: "cookie:absent"}, nil, ""},
		{Host{Hash: "cookie:sid"}, &Ask{Hash: strings.Repeat("k", 2000)}, "&hash=" + strings.Repeat("k", 1024)},
		{Host{Target: "t"}, nil, "&path=%2Fa%252Fb%2Fc"},
		{Host{Target: "xds:///t", Headers: []string{"tenant"}, Hash: "cookie:sid"}, nil, "&hash=7&path=%2Fa%252Fb%2Fc&header.tenant=1&header.tenant=2"},
		{Host{Target: "t", Headers: []string{"a&hash=b"}}, &Ask{Header: http.Header{"A&path=/": {"1"}}}, "&path=%2Fa%252Fb%2Fc&header.A%26path%3D%2F=1"},
		{Host{Cluster: "xds:///t"}, &Ask{Path: "/p", Header: http.Header{"B": {"1"}, "A": {"2"}}}, "&path=%2Fp&header.A=2&header.B=1"},
	} {
		name, err := c.host.name("x.lbd")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.host.query(name, request, c.ask); got != c.want {
			t.Errorf("%+v, %+v: %s, want %s", c.host, c.ask, got, c.want)
		}
	}
	for _, wrong := range []Host{{Hash: "x-user"}, {Hash: "query:a"}, {Hash: "header:"}, {Cluster: "a", Target: "b"}} {
		if _, err := New(Config{Hosts: map[string]Host{"x.lbd": wrong}}); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// TestAsked: batches are of one generation, at most maxAsked, and those that were used last.
func TestAsked(t *testing.T) {
	var a asked
	put := func(query string, generation int64, published bool) {
		a.put(&batch{query: query, generation: generation}, published)
	}
	want := func(query string, known bool) {
		t.Helper()
		if got := a.get(query) != nil; got != known {
			t.Errorf("%s is known: %v", query, got)
		}
	}
	put("a", 5, true)
	put("late", 4, false)
	want("a", true)
	want("late", false)
	put("b", 6, false)
	want("a", false)
	put("refused", 0, false)
	put("c", 3, true) // after a restart
	want("b", false)
	want("refused", false)
	for i := range 10 * maxAsked {
		put(fmt.Sprint(i), 3, false)
		want("c", true)
		if n := len(a.recent) + len(a.older); n > maxAsked {
			t.Fatalf("%d batches", n)
		}
	}
	want("0", false)
	a.clear()
	for i := range maxAsked {
		put(fmt.Sprint(i, strings.Repeat("x", maxQuery)), 3, false)
		put("used", 3, false)
		want("used", true)
		if n := len(a.recent) + len(a.older); n > maxAskedBytes/maxQuery+4 {
			t.Fatalf("%d batches with long queries", n)
		}
	}
}
