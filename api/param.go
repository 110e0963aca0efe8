package api

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

// Limits of what a pick can say of its request.
const (
	// MaxHashBytes is the longest hash key.
	MaxHashBytes = 1024
	// MaxPathBytes is the longest path.
	MaxPathBytes = 4 << 10
	// MaxHeadersBytes is the most bytes that the names and values of headers have
	// together.
	MaxHeadersBytes = 16 << 10
)

// parameter is one that a query may have.
type parameter struct {
	name    string
	repeats bool
	// begins is true for a parameter whose name only begins so: the rest of it
	// is up to the caller.
	begins bool
}

// value is what a parameter was given. A bare one has no "="; rest is that of
// the name of a parameter that only begins with it.
type value struct {
	text string
	bare bool
	rest string
}

// readQuery hands each parameter of a query to set. One that is not known, that
// comes twice and does not repeat, or for which set returns what it wanted
// instead, is refused by name. There may be no more than 64 known.
func readQuery(raw string, known []parameter, set func(name string, v value) (wanted string)) error {
	var seen uint64
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, text, assigned := strings.Cut(pair, "=")
		name, err := unescape(name)
		if err != nil {
			return err
		}
		if text, err = unescape(text); err != nil {
			return err
		}
		at := indexOf(known, name)
		if at < 0 {
			return unknownParameter(known, name)
		}
		if seen&(1<<at) != 0 && !known[at].repeats {
			return refusal(fault.InvalidArgument, "%s: is given twice", name)
		}
		seen |= 1 << at
		v := value{text: text, bare: !assigned}
		if known[at].begins {
			v.rest = name[len(known[at].name):]
		}
		if wanted := set(known[at].name, v); wanted != "" {
			return refusal(fault.InvalidArgument, "%s: %q is not %s", name, clip(text), wanted)
		}
	}
	return nil
}

func indexOf(known []parameter, name string) int {
	for i := range known {
		if known[i].name == name || known[i].begins && strings.HasPrefix(name, known[i].name) {
			return i
		}
	}
	return -1
}

func unknownParameter(known []parameter, name string) error {
	if len(known) == 0 {
		return refusal(fault.InvalidArgument, "%q: no parameter is known here", clip(name))
	}
	names := make([]string, len(known))
	for i, p := range known {
		if names[i] = p.name; p.begins {
			names[i] += "NAME"
		}
	}
	return refusal(fault.InvalidArgument, "%q: is no parameter that is known here: there are %s", clip(name), strings.Join(names, ", "))
}

// noQuery refuses every parameter.
func noQuery(raw string) error { return readQuery(raw, nil, nil) }

func unescape(s string) (string, error) {
	if !strings.ContainsAny(s, "%+") {
		return s, nil
	}
	decoded, err := url.QueryUnescape(s)
	if err != nil {
		return "", refusal(fault.InvalidArgument, "query: %q is not percent-encoded as it should be", clip(s))
	}
	return decoded, nil
}

// The readers of values return what they want where the value is something
// else, and nothing where it is good.

func (v value) boolean(to *bool) string {
	switch {
	case v.bare, v.text == "true", v.text == "1":
		*to = true
	case v.text == "false", v.text == "0":
		*to = false
	default:
		return "true or false"
	}
	return ""
}

// strict reads whether unknown fields are errors, which they are without it.
func (v value) strict(lenient *bool) string {
	strict := true
	wanted := v.boolean(&strict)
	*lenient = !strict
	return wanted
}

func (v value) integer(to *int, least, most int) string {
	n, err := strconv.Atoi(v.text)
	if err != nil || n < least || n > most {
		return fmt.Sprintf("a whole number from %d to %d", least, most)
	}
	*to = n
	return ""
}

func (v value) int64(to *int64) string {
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		return "a whole number"
	}
	*to = n
	return ""
}

func (v value) duration(to *time.Duration, least, most time.Duration) string {
	d, err := time.ParseDuration(v.text)
	if err != nil || d < least || d > most {
		return fmt.Sprintf("a duration from %v to %v, such as 250ms or 5s", least, most)
	}
	*to = d
	return ""
}

func (v value) name(to *string) string {
	if badName(v.text) != "" {
		return fmt.Sprintf("a name of 1 to %d bytes of printable UTF-8", MaxNameBytes)
	}
	*to = v.text
	return ""
}

func (v value) limited(to *string, most int) string {
	if v.text == "" || len(v.text) > most {
		return fmt.Sprintf("a text of 1 to %d bytes", most)
	}
	*to = v.text
	return ""
}

// path takes what a request's path can be.
func (v value) path(to *string) string {
	if v.text == "" || v.text[0] != '/' || len(v.text) > MaxPathBytes || strings.ContainsFunc(v.text, unicode.IsControl) {
		return fmt.Sprintf("a path such as /package.Service/Method, of at most %d bytes", MaxPathBytes)
	}
	*to = v.text
	return ""
}

// header appends a header whose name is the rest of the parameter's. Names are
// compared in lower case.
func (v value) header(to *[]picks.Header, most int) string {
	if len(*to) == most {
		return fmt.Sprintf("among the first %d headers, which is the most", most)
	}
	if !isToken(v.rest) {
		return fmt.Sprintf("the value of a header: %q can be no header's name", clip(v.rest))
	}
	for i := range len(v.text) {
		if c := v.text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "a header's value: it holds a control character"
		}
	}
	size := len(v.rest) + len(v.text)
	for _, h := range *to {
		size += len(h.Name) + len(h.Value)
	}
	if size > MaxHeadersBytes {
		return fmt.Sprintf("within the %d bytes that all headers together may have", MaxHeadersBytes)
	}
	*to = append(*to, picks.Header{Name: strings.ToLower(v.rest), Value: v.text})
	return ""
}

// isToken reports whether s can be a header's name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// address appends a "host:port", as picks answer it.
func (v value) address(to *[]string, most int) string {
	if len(*to) == most {
		return fmt.Sprintf("among the first %d, which is the most", most)
	}
	host, port, err := net.SplitHostPort(v.text)
	if err != nil || host == "" {
		return addressWanted
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return addressWanted
	}
	*to = append(*to, v.text)
	return ""
}

const addressWanted = "an address, such as 10.0.0.7:8080 or [2001:db8::7]:8080"
