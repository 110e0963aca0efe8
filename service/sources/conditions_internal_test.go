package sources

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// texts joins what identifies each condition.
func texts(conditions []observe.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s %s since %d: %s", c.Kind, c.Subject, c.Since.Unix(), c.Text))
	}
	return strings.Join(out, "\n")
}

func TestUnreachableServers(t *testing.T) {
	refused := errors.New("connection refused")
	at := time.Unix(7, 0)
	up := func(uri, authority string) client.ServerStatus {
		return client.ServerStatus{URI: uri, Authority: authority, Connected: true, Targets: 1, Since: at}
	}
	down := func(uri, authority string) client.ServerStatus {
		return client.ServerStatus{URI: uri, Authority: authority, LastError: refused, LastErrorAt: at}
	}
	for name, c := range map[string]struct {
		servers []client.ServerStatus
		want    string
	}{
		"no server":                    {nil, ""},
		"connected":                    {[]client.ServerStatus{up("a", "")}, ""},
		"not tried yet":                {[]client.ServerStatus{{URI: "a"}}, ""},
		"connected after an error":     {[]client.ServerStatus{{URI: "a", Connected: true, LastError: refused}}, ""},
		"a fallback that is not used":  {[]client.ServerStatus{up("a", ""), down("b", "")}, ""},
		"the only server":              {[]client.ServerStatus{down("a", "")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"the fallback is used":         {[]client.ServerStatus{down("a", ""), up("b", "")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); fallback server b is in use (targets: 1)"},
		"a fallback without targets":   {[]client.ServerStatus{down("a", ""), {URI: "b", Connected: true}}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"another authority has its up": {[]client.ServerStatus{up("b", ""), down("a", "x")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
		"one server, two authorities":  {[]client.ServerStatus{down("a", ""), down("a", "x")}, "server_unreachable a since 7: management server a cannot be reached (connection refused); the last good resources stay in use"},
	} {
		if got := texts(unreachableServers(c.servers)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func TestRejectedResources(t *testing.T) {
	rejection := &client.Rejection{Version: "2", Err: errors.New("name: is required"), At: time.Unix(7, 0)}
	key := func(name string) resource.Key { return resource.Key{Type: resource.TypeCluster, Name: name} }
	got := texts(rejectedResources([]client.ResourceStatus{
		{Key: key("good"), State: client.Acked},
		{Key: key("cached"), State: client.NackedButCached, Rejection: rejection},
		{Key: key("new"), State: client.Nacked, Rejection: rejection},
	}))
	const want = "resource_rejected Cluster/cached since 7: Cluster/cached of the management server is rejected (name: is required); the last good version stays in use\n" +
		"resource_rejected Cluster/new since 7: Cluster/new of the management server is rejected (name: is required); there is no earlier version"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
