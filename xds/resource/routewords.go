package resource

import (
	"fmt"
	"regexp"
	"strconv"
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

// Words say what meets the condition, such as suffix ".example.com".
func (m *StringMatch) Words() string {
	words, value := "exact", m.Value
	switch m.Kind {
	case MatchPrefix:
		words = "prefix"
	case MatchSuffix:
		words = "suffix"
	case MatchContains:
		words = "contains"
	case MatchRegex:
		words, value = "safe_regex", pattern(m.Regex)
	case MatchExact:
	}
	words += " " + strconv.Quote(value)
	if m.CaseInsensitive {
		words += ", whatever its case"
	}
	return words
}

// wholePrefix and wholeSuffix make a pattern match whole texts only.
const (
	wholePrefix = "^(?:"
	wholeSuffix = ")$"
)

// WholeRegex compiles a regular expression that matches whole texts only.
func WholeRegex(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(wholePrefix + pattern + wholeSuffix)
}

// pattern is what a WholeRegex was compiled from.
func pattern(re *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(re.String(), wholePrefix), wholeSuffix)
}
