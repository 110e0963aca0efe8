package resource

import (
	"fmt"
	"strings"
)

// Words say which requests the route takes, such as
//
//	prefix "/orders", header tenant: exact "a", 5000 of a million
func (m *RouteMatch) Words() string {
	var words strings.Builder
	words.WriteString(m.PathWords())
	for i := range m.Headers {
		h := &m.Headers[i]
		words.WriteString(", header " + h.Name + ": " + strings.TrimPrefix(h.wanted(), "it "))
	}
	if m.HasFraction {
		words.WriteString(fmt.Sprintf(", %d of a million", m.PerMillion))
	}
	return words.String()
}
