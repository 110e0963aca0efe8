package api

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

const (
	// MaxPoll is the maximum wait of a long poll.
	MaxPoll = 5 * time.Minute
	// MaxList is the maximum limit of a list.
	MaxList = 10_000
)

// Limits of the parameters of a pick, in bytes.
const (
	// MaxOwnerBytes is the maximum length of owner.
	MaxOwnerBytes = 128
	// MaxHashBytes is the maximum length of a hash key.
	MaxHashBytes = 1024
	// MaxPathBytes is the maximum length of a path.
	MaxPathBytes = 4 << 10
	// MaxHeadersBytes is the maximum length of the names and values of all headers together.
	MaxHeadersBytes = 16 << 10
)

// parameter is a parameter that a query may have.
type parameter struct {
	name    string
	repeats bool
	// prefix is true if name is a prefix, and the caller chooses the rest.
	prefix bool
	// percent is true if a percent sign at the end of a value may stand for itself: curl does not encode
	// that of max_shift=20%.
	percent bool
	// set stores a value, or returns a description of valid values.
	set func(value) string
}

// value is the value of a parameter. bare is true if the query has no "="; rest is the
// part of the name after a prefix.
type value struct {
	text string
	bare bool
	rest string
}

// readParameters passes the parameters of a query to their set functions. It rejects
// unknown and repeated parameters, and invalid values.
func readParameters(r *http.Request, known ...parameter) error {
	return readQuery(r.URL.RawQuery, known, nil)
}

// readNamed returns the name in a path parameter, and reads the query.
func readNamed(r *http.Request, in string, known ...parameter) (string, error) {
	name, err := pathName(r, in)
	if err != nil {
		return "", err
	}
	return name, readParameters(r, known...)
}

// readQuery is readParameters with one set function for all parameters, which allocates
// less. There may be at most 64 known parameters.
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
		at := indexOf(known, name)
		if at >= 0 && known[at].percent && strings.HasSuffix(text, "%") {
			text += "25"
		}
		if text, err = unescape(text); err != nil {
			return err
		}
		if at < 0 {
			return unknownParameter(known, name)
		}
		if seen&(1<<at) != 0 && !known[at].repeats {
			return fault.Errorf(fault.InvalidArgument, "%s: given twice", name)
		}
		seen |= 1 << at
		v := value{text: text, bare: !assigned}
		if known[at].prefix {
			v.rest = name[len(known[at].name):]
		}
		var wanted string
		if set != nil {
			wanted = set(known[at].name, v)
		} else {
			wanted = known[at].set(v)
		}
		if wanted != "" {
			return fault.Errorf(fault.InvalidArgument, "%s: %q is not %s", name, fault.Clip(text), wanted)
		}
	}
	return nil
}

func indexOf(known []parameter, name string) int {
	for i := range known {
		if known[i].name == name || known[i].prefix && strings.HasPrefix(name, known[i].name) {
			return i
		}
	}
	return -1
}

func unknownParameter(known []parameter, name string) error {
	if len(known) == 0 {
		return fault.Errorf(fault.InvalidArgument, "%q: unknown parameter; there are none", fault.Clip(name))
	}
	names := make([]string, len(known))
	for i, p := range known {
		if names[i] = p.name; p.prefix {
			names[i] += "NAME"
		}
	}
	return fault.Errorf(fault.InvalidArgument, "%q: unknown parameter; there are %s", fault.Clip(name), strings.Join(names, ", "))
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	decoded, err := url.QueryUnescape(s)
	if err != nil {
		return "", fault.Errorf(fault.InvalidArgument, "query: %q is not valid percent-encoding", fault.Clip(s))
	}
	return decoded, nil
}

// The following methods store a valid value, or return a description of valid values.

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

// strict stores whether unknown fields are only warnings.
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

// part stores a percentage as a part of 1.
func (v value) part(to **float64) string {
	const wanted = "a percentage from 0% to 100%"
	number, ok := strings.CutSuffix(v.text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return wanted
	}
	*to = new(n / 100)
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

// path stores the path of a request.
func (v value) path(to *string) string {
	if v.text == "" || v.text[0] != '/' || len(v.text) > MaxPathBytes || strings.ContainsFunc(v.text, unicode.IsControl) {
		return fmt.Sprintf("a path such as /package.Service/Method, of at most %d bytes", MaxPathBytes)
	}
	*to = v.text
	return ""
}

// header appends a header, whose name is the rest of the parameter's name, in lower case.
func (v value) header(to *[]picks.Header, most int) string {
	if len(*to) == most {
		return fmt.Sprintf("valid: at most %d headers are allowed", most)
	}
	if !isToken(v.rest) {
		return fmt.Sprintf("valid: %q is not a header name", fault.Clip(v.rest))
	}
	for i := range len(v.text) {
		if c := v.text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "a header value: it has a control character"
		}
	}
	size := len(v.rest) + len(v.text)
	for _, h := range *to {
		size += len(h.Name) + len(h.Value)
	}
	if size > MaxHeadersBytes {
		return fmt.Sprintf("valid: all headers together may have at most %d bytes", MaxHeadersBytes)
	}
	*to = append(*to, picks.Header{Name: strings.ToLower(v.rest), Value: v.text})
	return ""
}

// isToken reports whether s is a valid header name (RFC 9110, section 5.6.2).
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

// address appends an address in the form that picks return it, "host:port".
func (v value) address(to *[]string, most int) string {
	if len(*to) == most {
		return fmt.Sprintf("valid: at most %d addresses are allowed", most)
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

// listing selects a part of a list that is sorted by name.
type listing struct {
	prefix, after string
	limit         int // 0 for no limit
}

// readListing reads the parameters prefix, after and limit, and takes the turn of a list of clusters.
func (h *handlers) readListing(w *recorder, r *http.Request) (l listing, err error) {
	err = h.readServed(w, r,
		parameter{name: "prefix", set: func(v value) string { return v.name(&l.prefix) }},
		parameter{name: "after", set: func(v value) string { return v.name(&l.after) }},
		parameter{name: "limit", set: func(v value) string { return v.integer(&l.limit, 1, MaxList) }},
	)
	if err != nil {
		return l, err
	}
	return l, takeTurnOf(w, r, h.State.CountClusters(), clusterBytes)
}

// part returns the selected part of a list, which is never nil, and the value of after=
// for the next part; empty if there is none. visible reports whether the caller may see a name.
func part[S any](l listing, all []S, visible func(string) bool, name func(S) string) (page []S, next string) {
	page = []S{}
	for _, s := range all {
		if name(s) <= l.after || !strings.HasPrefix(name(s), l.prefix) || !visible(name(s)) {
			continue
		}
		if l.limit > 0 && len(page) == l.limit {
			return page, name(page[l.limit-1])
		}
		page = append(page, s)
	}
	return page, ""
}
