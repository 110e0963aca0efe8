package lb

import (
	"crypto/x509"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestDNSNames: gRPC's rules of wildcards.
func TestDNSNames(t *testing.T) {
	for _, tt := range []struct {
		host, san string
		want      bool
	}{
		{"a.example", "a.example", true},
		{"a.example", "b.example", false},
		{"A.Example", "a.eXample", true},
		{"a.example.", "a.example", true},
		{"a.example", "a.example.", true},
		{"a.example", "*.example", true},
		{"A.example", "*.EXAMPLE.", true},
		{"b.a.example", "*.example", false},
		{"b.a.example", "*.a.example", true},
		{"example", "*.example", false},
		{".example", "*.example", false},
		{"a.example", "*", false},
		{"a", "*", false},
		{"a.example", "*.", false},
		{"ab.example", "a*.example", false},
		{"ab.example", "*b.example", false},
		{"a.b.example", "a.*.example", false},
		{"a.b.example", "*.*.example", false},
		{"a.*.example", "*.*.example", false},
		{"*.example", "*.example", true},
		{"", "", true},
		{"a", "", false},
	} {
		if got := matchesDNS(tt.host, tt.san); got != tt.want {
			t.Errorf("%q by %q: %t", tt.host, tt.san, got)
		}
	}
}

// TestNamesThatAreWanted: which certificates bear one.
func TestNamesThatAreWanted(t *testing.T) {
	uri, err := url.Parse("spiffe://Example/orders")
	noError(t, err)
	leaf := &x509.Certificate{
		DNSNames: []string{"*.wild.example", "plain.example"}, EmailAddresses: []string{"a@b.example"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, URIs: []*url.URL{uri},
	}
	for _, tt := range []struct {
		match resource.StringMatch
		want  bool
	}{
		{resource.StringMatch{Value: "a.wild.example"}, true},
		{resource.StringMatch{Value: "PLAIN.example"}, true}, // a DNS name has no case
		{resource.StringMatch{Value: "a.b.wild.example"}, false},
		{resource.StringMatch{Value: "A@b.example"}, false}, // other names have
		{resource.StringMatch{Value: "a@b.example"}, true},
		{resource.StringMatch{Value: "10.0.0.1"}, true},
		{resource.StringMatch{Value: "spiffe://Example/orders"}, true},
		{resource.StringMatch{Value: "spiffe://example/orders"}, false},
		{resource.StringMatch{Value: "spiffe://example/orders", CaseInsensitive: true}, true},
		{resource.StringMatch{Kind: resource.MatchPrefix, Value: "a.wild"}, false}, // a wildcard covers what is exact
		{resource.StringMatch{Kind: resource.MatchPrefix, Value: "plain."}, true},
		{resource.StringMatch{Kind: resource.MatchPrefix, Value: "PLAIN."}, false},
		{resource.StringMatch{Kind: resource.MatchSuffix, Value: "/orders"}, true},
		{resource.StringMatch{Kind: resource.MatchContains, Value: "@b"}, true},
		{resource.StringMatch{Kind: resource.MatchRegex, Regex: regexp.MustCompile(`^(?:10\..*)$`)}, true},
		{resource.StringMatch{Kind: resource.MatchRegex, Regex: regexp.MustCompile(`^(?:10)$`)}, false},
		{resource.StringMatch{}, false},
	} {
		if got := namesOneOf(leaf, []resource.StringMatch{{Value: "none"}, tt.match}); got != tt.want {
			t.Errorf("%s: %t", tt.match.Words(), got)
		}
	}
	if got := presented(&x509.Certificate{DNSNames: slices.Repeat([]string{"a"}, maxNames)}); got != strings.Repeat(`DNS "a", `, maxNames-1)+`DNS "a"` {
		t.Errorf("as many names as are listed: %s", got)
	}
	many := &x509.Certificate{DNSNames: slices.Repeat([]string{strings.Repeat("a", 300)}, 1000)}
	if got := presented(many); len(got) > 3000 || !strings.HasSuffix(got, " and 990 more") {
		t.Errorf("%d bytes of names: …%s", len(got), got[max(0, len(got)-40):])
	}
}
