package lb

import (
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxNames limits the names in an error.
const maxNames = 10

// wanted returns the name that a server's certificate lacks; "" if none. If the name
// that was sent counts (gRFC A101), no other does.
func (h *handshake) wanted(leaf *x509.Certificate) string {
	s := h.security
	if s.AutoSANValidation && h.name != "" {
		for _, san := range leaf.DNSNames {
			if matchesDNS(h.name, san) {
				return ""
			}
		}
		return "DNS " + strconv.Quote(h.name) + ", the name that was sent"
	}
	if len(s.SANs) == 0 || namesOneOf(leaf, s.SANs) {
		return ""
	}
	words := make([]string, len(s.SANs))
	for i := range s.SANs {
		words[i] = s.SANs[i].Words()
	}
	return list(words, " or ")
}

// namesOneOf reports whether a certificate has a wanted name. An exact match applies
// to DNS names, including wildcards, and to the text of other names.
func namesOneOf(leaf *x509.Certificate, wanted []resource.StringMatch) bool {
	for i := range wanted {
		m := &wanted[i]
		for _, san := range leaf.DNSNames {
			if m.Kind == resource.MatchExact && m.Value != "" {
				if matchesDNS(m.Value, san) {
					return true
				}
			} else if m.Matches(san) {
				return true
			}
		}
		for _, san := range otherNames(leaf) {
			if m.Matches(san.name) {
				return true
			}
		}
	}
	return false
}

// matchesDNS reports whether a certificate's DNS name matches a host. A wildcard
// replaces the whole first label; case and a final dot are ignored.
func matchesDNS(host, san string) bool {
	host, san = absolute(host), absolute(san)
	if !strings.Contains(san, "*") {
		return host == san
	}
	domain, ok := strings.CutPrefix(san, "*.")
	if !ok || domain == "" || strings.Contains(domain, "*") {
		return false
	}
	label, parent, _ := strings.Cut(host, ".")
	return label != "" && parent == domain
}

func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// otherName is a name in a certificate that is not a DNS name.
type otherName struct{ kind, name string }

func otherNames(leaf *x509.Certificate) []otherName {
	names := make([]otherName, 0, len(leaf.EmailAddresses)+len(leaf.IPAddresses)+len(leaf.URIs))
	for _, n := range leaf.EmailAddresses {
		names = append(names, otherName{"email", n})
	}
	for _, n := range leaf.IPAddresses {
		names = append(names, otherName{"IP", n.String()})
	}
	for _, n := range leaf.URIs {
		names = append(names, otherName{"URI", n.String()})
	}
	return names
}

// presented lists the names in a certificate.
func presented(leaf *x509.Certificate) string {
	words := make([]string, 0, len(leaf.DNSNames))
	for _, n := range leaf.DNSNames {
		words = append(words, fmt.Sprintf("DNS %.255q", n))
	}
	for _, n := range otherNames(leaf) {
		words = append(words, fmt.Sprintf("%s %.255q", n.kind, n.name))
	}
	if len(words) == 0 {
		return "no name"
	}
	return list(words, ", ")
}

func list(words []string, with string) string {
	if more := len(words) - maxNames; more > 0 {
		return strings.Join(words[:maxNames], with) + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, with)
}
