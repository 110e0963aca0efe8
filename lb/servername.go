package lb

import (
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxNames is how many names an error names.
const maxNames = 10

// wanted says which name is missing in a server's certificate; empty where none
// is. Where the name that was sent counts (gRFC A101) nothing else does.
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
	if len(s.SANs) == 0 || bearsOne(leaf, s.SANs) {
		return ""
	}
	words := make([]string, len(s.SANs))
	for i := range s.SANs {
		words[i] = s.SANs[i].Words()
	}
	return list(words, " or ")
}

// bearsOne reports whether one of a certificate's names is one of those that are
// wanted. An exact one stands for a DNS name, which a wildcard covers too; of
// other names it stands for itself.
func bearsOne(leaf *x509.Certificate, wanted []resource.StringMatch) bool {
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

// matchesDNS reports whether a certificate's DNS name, which may begin with a
// wildcard label, covers a host. The wildcard stands for one whole label, the
// first; case and a final dot do not count.
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

// namedBy is one name in a certificate, other than DNS names.
type namedBy struct{ kind, name string }

func otherNames(leaf *x509.Certificate) []namedBy {
	names := make([]namedBy, 0, len(leaf.EmailAddresses)+len(leaf.IPAddresses)+len(leaf.URIs))
	for _, n := range leaf.EmailAddresses {
		names = append(names, namedBy{"email", n})
	}
	for _, n := range leaf.IPAddresses {
		names = append(names, namedBy{"IP", n.String()})
	}
	for _, n := range leaf.URIs {
		names = append(names, namedBy{"URI", n.String()})
	}
	return names
}

// presented are the names that a certificate bears, in words.
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

// list joins words, the first maxNames of them.
func list(words []string, with string) string {
	if more := len(words) - maxNames; more > 0 {
		return strings.Join(words[:maxNames], with) + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, with)
}
