package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
)

func TestInterleave(t *testing.T) {
	for _, tt := range []struct{ name, list, want string }{
		{"none", "", ""},
		{"one", "10.0.0.1:1", "10.0.0.1:1"},
		{"one family", "10.0.0.1:1 10.0.0.2:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1 10.0.0.3:1"},
		{"in turn already", "[::1]:1 10.0.0.1:1", "[::1]:1 10.0.0.1:1"},
		{"the first one's family first", "[::1]:1 [::2]:1 10.0.0.1:1", "[::1]:1 10.0.0.1:1 [::2]:1"},
		{
			"the longer family ends the list",
			"10.0.0.1:1 [::1]:1 [::2]:1 [::3]:1 10.0.0.2:1",
			"10.0.0.1:1 [::1]:1 10.0.0.2:1 [::2]:1 [::3]:1",
		},
		{"names are a family, and an IPv4 address in IPv6 is IPv4", "[::ffff:10.0.0.1]:1 10.0.0.2:1 db:1", "[::ffff:10.0.0.1]:1 db:1 10.0.0.2:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := strings.Fields(tt.list)
			before := slices.Clone(list)
			got := policy.Interleave(list, func(a string) string { return a })
			if strings.Join(got, " ") != tt.want || !slices.Equal(list, before) {
				t.Errorf("got %v of %v, want %s", got, list, tt.want)
			}
		})
	}
}
