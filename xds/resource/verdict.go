package resource

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// verdict collects what the decoder finds in one resource.
type verdict struct {
	key    Key
	byHand bool
	// lenient is true where unknown fields are warnings, not problems; binary where
	// they have numbers instead of names.
	lenient, binary bool
	stored          bool
	custom          CustomPolicies // nil: no custom policy is available
	// certificates is nil if there is no bootstrap.
	certificates CertificateProviders
	problems     ledger
	unknown      ledger // fields that no message has
	warnings     ledger
	notes        ledger
	// unapplied are the fields that are set and not applied, each kind once, and
	// unappliedList the same in the order in which they were found.
	unapplied     map[*ignoredField]*unapplied
	unappliedList []*unapplied
	// regexSize is how many instructions the regular expressions stand for, where
	// they are written by hand.
	regexSize int
}

// begin returns an empty verdict on what has the key.
func (o Options) begin(k Key) *verdict {
	return &verdict{
		key:          k,
		byHand:       o.Origin == ByHand,
		lenient:      o.Lenient || o.Stored || o.Origin == FromServer || o.Format == FormatProtobuf,
		binary:       o.Format == FormatProtobuf,
		stored:       o.Stored,
		custom:       o.Custom,
		certificates: o.Certificates,
	}
}

// refuse adds a broken rule.
func (v *verdict) refuse(field, format string, args ...any) {
	v.problems.add(field, format, args)
}

// refuseNew adds a broken rule that earlier versions of lbd did not have. A resource
// that is stored may have been accepted by one of them: it only gets a warning, which
// ends with what lbd does instead.
func (v *verdict) refuseNew(field, reason, instead string) {
	if v.stored {
		v.warn(field, "%s; a new push of it is rejected, and this one, which is stored already, stays in force: %s", reason, instead)
		return
	}
	v.refuse(field, "%s", reason)
}

// warn adds a warning.
func (v *verdict) warn(field, format string, args ...any) {
	v.warnings.add(field, format, args)
}

// warnByHand adds a warning if the resource is written by hand.
func (v *verdict) warnByHand(field, format string, args ...any) {
	if v.byHand {
		v.warn(field, format, args...)
	}
}

// note adds what the decoder filled in for the author of a resource, which asks
// for no change.
func (v *verdict) note(field, format string, args ...any) {
	v.notes.add(field, format, args)
}

// unknownField adds a field that no message has. reason is called only if the field
// will be listed.
func (v *verdict) unknownField(field string, reason func() string) {
	if v.unknown.full() {
		v.unknown.more++
		return
	}
	v.unknown.add(field, "%s", []any{reason()})
	v.unknown.list[len(v.unknown.list)-1].unknown = true
}

// rejection returns the problems for which the resource is rejected, an empty list if
// it is accepted. Misspelled fields come first, even if they alone would only be
// warnings: the other problems may be their effects.
func (v *verdict) rejection() *ledger {
	if v.problems.empty() && (v.lenient || v.unknown.empty()) {
		return &ledger{}
	}
	if v.binary {
		return &v.problems
	}
	all := v.unknown
	all.append(&v.problems)
	return &all
}

// err returns an InvalidError with all problems, or nil if there are none.
func (v *verdict) err() error {
	if all := v.rejection(); !all.empty() {
		return &InvalidError{Problems: all.of(v.key)}
	}
	return nil
}

// warnUnapplied warns of a field of m that is judged, and that is not applied in this
// resource. name is that of the field, and at is its path.
func (v *verdict) warnUnapplied(m proto.Message, name protoreflect.Name, at, format string, args ...any) {
	if v.byHand {
		v.warn(at, format, args...)
		return
	}
	if v.stored {
		return
	}
	full := string(nameOf(m)) + "." + string(name)
	if !slices.ContainsFunc(v.unappliedList, func(u *unapplied) bool { return u.name == full }) {
		f := &ignoredField{name: full, reason: clip(fmt.Sprintf(format, args...))}
		v.unappliedList = append(v.unappliedList, &unapplied{ignoredField: f, path: at})
	}
}

// remarks returns the warnings of a resource that is accepted. What a management server
// sends has the fields that are not applied in Item.Unapplied instead.
func (v *verdict) remarks() *ledger {
	all := ledger{list: make([]Problem, 0, len(v.unknown.list)+len(v.warnings.list)), more: v.unknown.more}
	for _, p := range v.unknown.list {
		p.Reason += ": ignored"
		all.list = append(all.list, p)
	}
	all.append(&v.warnings)
	if !v.byHand {
		return &all
	}
	for _, u := range v.unappliedList {
		all.append(&ledger{list: []Problem{u.problem()}})
	}
	return &all
}

// ledger is a list of problems that does not grow beyond MaxProblems.
type ledger struct {
	list []Problem
	more int
}

func (l *ledger) empty() bool { return len(l.list) == 0 }

func (l *ledger) full() bool { return len(l.list) >= MaxProblems }

func (l *ledger) add(field, format string, args []any) {
	if l.full() {
		l.more++
		return
	}
	l.list = append(l.list, Problem{Field: clip(field), Reason: clip(fmt.Sprintf(format, args...))})
}

// append adds the problems of another list.
func (l *ledger) append(from *ledger) {
	n := min(len(from.list), MaxProblems-len(l.list))
	l.list = append(slices.Clip(l.list), from.list[:n]...)
	l.more += len(from.list) - n + from.more
}

// maxWords is the longest field and the longest reason of a problem, in bytes: a
// reason may quote what was sent.
const maxWords = 1024

// clip shortens s to maxWords.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "…"
}

// of returns the problems as those of the resource k, whose name may have become
// known after the first of them was added.
func (l *ledger) of(k Key) []Problem {
	list := l.list
	if l.more > 0 {
		list = append(list, Problem{Reason: fmt.Sprintf("and %d more like these", l.more)})
	}
	for i := range list {
		list[i].Resource = k.String()
	}
	return list
}

// take appends another's problems as those of the resource k at a path.
func (l *ledger) take(from *ledger, k Key, at string) {
	for _, p := range from.list {
		if l.full() {
			l.more++
			continue
		}
		p.Resource, p.Field = k.String(), within(at, p.Field)
		l.list = append(l.list, p)
	}
	l.more += from.more
}

// ofBundle returns the problems, which name their resources already.
func (l *ledger) ofBundle() []Problem {
	if l.more == 0 {
		return l.list
	}
	return append(l.list, Problem{Resource: string(typeBundle), Reason: fmt.Sprintf("and %d more like these", l.more)})
}
