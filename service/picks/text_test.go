package picks

import (
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// connection is a Connection that nothing checks.
type connection struct{ policy.Connection }

func (*connection) Recheck() bool { return false }

// TestText: the text is rendered once for each value of an endpoint, unless the address is
// not its first.
func TestText(t *testing.T) {
	rendered := 0
	render := func(p *Pick) string {
		rendered++
		return p.Address + " " + p.Hostname()
	}
	var c connection
	first := &resource.Endpoint{Addresses: []string{"a:1", "b:1"}, Hostname: "old"}
	c.Init(&c, policy.ResolverEndpoint(first).Addresses, nil)
	u := c.Upstream()
	for _, step := range []struct {
		pick  Pick
		want  string
		times int
	}{
		{Pick{Address: "a:1", Endpoint: first, upstream: u}, "a:1 old", 1},
		{Pick{Address: "a:1", Endpoint: first, upstream: u}, "a:1 old", 1},
		{Pick{Address: "b:1", Endpoint: first, upstream: u}, "b:1 old", 2},
		{Pick{Address: "a:1", Endpoint: first}, "a:1 old", 3},
		{Pick{Address: "a:1", Endpoint: first, upstream: u}, "a:1 old", 3},
	} {
		if got := step.pick.Text(render); got != step.want || rendered != step.times {
			t.Errorf("%+v: %q, rendered %d times; want %q, %d", step.pick, got, rendered, step.want, step.times)
		}
	}
	second := &resource.Endpoint{Addresses: first.Addresses, Hostname: "new"}
	p := Pick{Address: "a:1", Endpoint: second, upstream: c.Replace(second)}
	if got := p.Text(render); got != "a:1 new" {
		t.Errorf("another value: %q", got)
	}
}
