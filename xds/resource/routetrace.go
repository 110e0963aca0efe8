package resource

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// RouteTrace is what was looked at on the way to a cluster.
type RouteTrace struct {
	// Routes are those that were tried, in order. The last one was taken, where
	// its Mismatch is empty.
	Routes []RouteLook
	// Hash are the taken route's hash policies that were asked, in order.
	Hash []HashLook
}

// RouteLook is one route that was tried.
type RouteLook struct {
	Route *Route
	// Mismatch says why the route did not take the request; empty where it did.
	Mismatch string
	// Draw is in [0, 1,000,000), where HasDraw: the route takes the request where
	// it is below its PerMillion.
	HasDraw bool
	Draw    uint32
}

// HashLook is one hash policy that was asked.
type HashLook struct {
	Policy *HashPolicy
	// Made is false where the request has not the policy's header.
	Made bool
	// Hash is the policy's own, before it was combined with those before it.
	Hash uint64
}

// words say why m does not take a request.
func (w mismatch) words(m *RouteMatch, r *Request) string {
	switch w.what {
	case nothing:
		return ""
	case unmatchedPath:
		return "the path does not match " + m.PathWords()
	case unmatchedHeader:
		return m.Headers[w.header].words(r.Headers)
	default:
		return fmt.Sprintf("it takes %d of a million, and %d was drawn", m.PerMillion, w.draw)
	}
}

// PathWords say which paths the route takes, such as prefix "/orders".
func (m *RouteMatch) PathWords() string {
	words := ""
	switch {
	case m.Path != nil:
		words = "path " + strconv.Quote(*m.Path)
	case m.Prefix != nil:
		words = "prefix " + strconv.Quote(*m.Prefix)
	case m.Regex != nil:
		return "safe_regex " + strconv.Quote(WholePattern(m.Regex))
	}
	if m.CaseInsensitive {
		words += ", whatever its case"
	}
	return words
}

// words say why the headers do not meet the condition.
func (m *HeaderMatch) words(headers []Header) string {
	value, there := headerValue(headers, m.Name)
	have := "is absent"
	if there {
		have = "is " + strconv.Quote(shorten(value))
	}
	return fmt.Sprintf("header %s %s: wanted %s", m.Name, have, m.wanted())
}

// shorten returns what is shown of a header's value, which a caller chooses.
func shorten(value string) string {
	const most = 1024
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

// wanted says what meets the condition.
func (m *HeaderMatch) wanted() string {
	words := m.String.Words()
	switch m.Kind {
	case HeaderPresent:
		if m.Present != m.Invert {
			return "present"
		}
		return "absent"
	case HeaderRange:
		words = fmt.Sprintf("range [%d, %d)", m.RangeStart, m.RangeEnd)
	case HeaderString:
	}
	if m.Invert {
		words = "anything but " + words
	}
	return words
}

// Words say which requests the route takes, such as
//
//	prefix "/orders", header tenant: exact "a", 5000 of a million
func (m *RouteMatch) Words() string {
	var words strings.Builder
	words.WriteString(m.PathWords())
	for i := range m.Headers {
		h := &m.Headers[i]
		words.WriteString(", header " + h.Name + ": " + h.wanted())
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
		words, value = "safe_regex", WholePattern(m.Regex)
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

// WholePattern is what a WholeRegex was compiled from.
func WholePattern(re *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(re.String(), wholePrefix), wholeSuffix)
}
