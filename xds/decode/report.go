package decode

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// report collects the problems, warnings and notes about one resource. Each validator has
// one.
type report struct {
	Options
	key     resource.Key
	byHand  bool
	lenient bool // unknown fields are warnings, not problems
	// sole is true for the only resource of a body, which must have the type of the key, and the
	// name of the Options if that is not empty. Another resource gets that name if it has none.
	sole bool

	problems, warnings, notes problemList
	unknown                   problemList // unknown fields
	unapplied                 unappliedFields
}

// begin returns an empty report on the resource with the key.
func (o Options) begin(k resource.Key) *report {
	return &report{
		Options: o,
		key:     k,
		byHand:  o.Origin == ByHand,
		lenient: o.Lenient || o.Stored || o.Origin == FromServer || o.Format == FormatProtobuf,
	}
}

func (r *report) reject(field, format string, args ...any) { r.problems.add(field, format, args) }

// rejectIf adds a broken rule unless the reason is empty.
func (r *report) rejectIf(field, reason string) {
	if reason != "" {
		r.reject(field, "%s", reason)
	}
}

// tooMany rejects a list that is written by hand and longer than most.
func (r *report) tooMany(field string, n, most int, elements string) bool {
	if !r.byHand || n <= most {
		return false
	}
	r.reject(field, "holds %d %s, of at most %d", n, elements, most)
	return true
}

func (r *report) warn(field, format string, args ...any) { r.warnings.add(field, format, args) }

// warnByHand adds a warning if the resource is written by hand.
func (r *report) warnByHand(field, format string, args ...any) {
	if r.byHand {
		r.warn(field, format, args...)
	}
}

// note adds what the decoder filled in. It asks the author for no change.
func (r *report) note(field, format string, args ...any) { r.notes.add(field, format, args) }

// unknownField adds an unknown field. reason is called only if the field will be listed.
func (r *report) unknownField(field string, reason func() string) {
	if r.unknown.full() {
		r.unknown.more++
		return
	}
	r.unknown.add(field, "%s", []any{reason()})
	r.unknown.list[len(r.unknown.list)-1].unknown = true
}

// rejection returns the problems for which the resource is rejected, an empty list if
// it is accepted. Unknown fields come first, even if they alone would only be warnings:
// the other problems may be their effects.
func (r *report) rejection() *problemList {
	if r.problems.empty() && (r.lenient || r.unknown.empty()) {
		return &problemList{}
	}
	if r.Format == FormatProtobuf { // the fields have numbers instead of names
		return &r.problems
	}
	all := r.unknown
	all.append(&r.problems)
	return &all
}

// err returns an InvalidError with all problems, or nil if there are none.
func (r *report) err() error {
	if all := r.rejection(); !all.empty() {
		return &InvalidError{Problems: all.of(r.key)}
	}
	return nil
}

// warnUnapplied warns of a field of m that is not applied in this resource, but may be in
// others. name is that of the field, and at is its path.
func (r *report) warnUnapplied(m proto.Message, name protoreflect.Name, at, format string, args ...any) {
	switch {
	case r.byHand:
		r.warn(at, format, args...)
	case !r.Stored:
		r.unapplied.addOnce(string(nameOf(m))+"."+string(name), at, text.Clip(fmt.Sprintf(format, args...)))
	}
}

// remarks returns the warnings about an accepted resource. For one of a management server
// the fields that are not applied are in Item.Unapplied instead.
func (r *report) remarks() *problemList {
	all := problemList{list: make([]Problem, 0, len(r.unknown.list)+len(r.warnings.list)), more: r.unknown.more}
	for _, p := range r.unknown.list {
		p.Reason += ": ignored"
		all.list = append(all.list, p)
	}
	all.append(&r.warnings)
	if r.byHand {
		for _, u := range r.unapplied.list {
			all.append(&problemList{list: []Problem{u.problem()}})
		}
	}
	return &all
}

// plainEndpoints reports whether an assignment has no unknown field, and its endpoints neither a
// warning nor a field that is not applied. For a stored one that is not known.
func (r *report) plainEndpoints() bool {
	return !r.Stored && r.unknown.empty() &&
		!slices.ContainsFunc(r.warnings.list, func(p Problem) bool { return strings.Contains(p.Field, ".lb_endpoints[") }) &&
		!slices.ContainsFunc(r.unapplied.list, func(u *unapplied) bool { return strings.HasPrefix(u.path, "endpoints[") })
}

// name validates a resource's own name, fills in an absent one, and returns it.
func (r *report) name(field, own string) string {
	expected := r.Name
	if r.byHand && own == "" && expected != "" {
		r.note(field, "is absent: taken as %q", expected)
		own = expected
	}
	switch {
	case own == "":
		r.reject(field, "is empty")
	case r.byHand && r.sole && expected != "" && own != expected:
		r.reject(field, "is %q, and should be %q or absent", own, expected)
		return expected
	default:
		r.key.Name = own
		if r.byHand {
			r.rejectIf(field, badName(own))
		}
	}
	return own
}

// badName returns why s cannot be the name of a resource, or nothing.
func badName(s string) string {
	if s == ReservedName {
		return fmt.Sprintf("is %q, which is reserved: metrics use it for the clusters without series of their own", s)
	}
	return badText(s, MaxNameBytes)
}

func badReference(s string) string {
	if s == "" {
		return "is empty"
	}
	return badName(s)
}

func badText(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("is %d bytes long, of at most %d", len(s), most)
	}
	return unprintable(s)
}

// unprintable returns which character of s cannot be printed, or nothing.
func unprintable(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("holds the character %U, which cannot be printed", r)
		}
	}
	return ""
}

// million is the unit of drops and of the fractions of requests.
const million = 1_000_000

var denominators = map[typev3.FractionalPercent_DenominatorType]uint64{
	typev3.FractionalPercent_HUNDRED: 100, typev3.FractionalPercent_TEN_THOUSAND: 10_000, typev3.FractionalPercent_MILLION: million,
}

// perMillion converts a fraction to parts per million, at most all of them.
func (r *report) perMillion(field string, p *typev3.FractionalPercent) uint64 {
	denominator := denominators[p.GetDenominator()]
	if denominator == 0 {
		r.reject(field+".denominator", "is %d, which is none of HUNDRED, TEN_THOUSAND, MILLION", p.GetDenominator())
		return 0
	}
	numerator := uint64(p.GetNumerator())
	if numerator > denominator {
		r.warnByHand(field+".numerator", "is %d of %d: taken as all of them", numerator, denominator)
	}
	return min(numerator*(million/denominator), million)
}
