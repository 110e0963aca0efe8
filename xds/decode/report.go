package decode

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// report collects what the decoder finds in one resource. Each validator has it.
type report struct {
	key    resource.Key
	byHand bool
	// lenient is true where unknown fields are warnings, not problems; binary where
	// they have numbers instead of names.
	lenient, binary bool
	stored, secured bool
	policies        Policies             // may be nil
	certificates    CertificateProviders // nil: there is no bootstrap

	problems, warnings, notes problemList
	unknown                   problemList // fields that no message has
	unapplied                 unappliedFields
}

// begin returns an empty report on the resource with the key.
func (o Options) begin(k resource.Key) *report {
	return &report{
		key:          k,
		byHand:       o.Origin == ByHand,
		lenient:      o.Lenient || o.Stored || o.Origin == FromServer || o.Format == FormatProtobuf,
		binary:       o.Format == FormatProtobuf,
		stored:       o.Stored,
		secured:      o.Secured,
		policies:     o.Policies,
		certificates: o.Certificates,
	}
}

// refuse adds a broken rule.
func (r *report) refuse(field, format string, args ...any) {
	r.problems.add(field, format, args)
}

// refuseIf adds a broken rule if there is a reason.
func (r *report) refuseIf(field, reason string) {
	if reason != "" {
		r.refuse(field, "%s", reason)
	}
}

// refuseNew adds a broken rule that earlier versions of lbd did not have. A resource
// that is stored may have been accepted by one of them: it only gets a warning, which
// ends with what lbd does instead.
func (r *report) refuseNew(field, reason, instead string) {
	if r.stored {
		r.warn(field, "%s; a new push of it is rejected, and this one, which is stored already, stays in force: %s", reason, instead)
		return
	}
	r.refuse(field, "%s", reason)
}

// warn adds a warning.
func (r *report) warn(field, format string, args ...any) {
	r.warnings.add(field, format, args)
}

// warnByHand adds a warning if the resource is written by hand.
func (r *report) warnByHand(field, format string, args ...any) {
	if r.byHand {
		r.warn(field, format, args...)
	}
}

// note adds what the decoder filled in for the author of a resource, which asks
// for no change.
func (r *report) note(field, format string, args ...any) {
	r.notes.add(field, format, args)
}

// unknownField adds a field that no message has. reason is called only if the field
// will be listed.
func (r *report) unknownField(field string, reason func() string) {
	if r.unknown.full() {
		r.unknown.more++
		return
	}
	r.unknown.add(field, "%s", []any{reason()})
	r.unknown.list[len(r.unknown.list)-1].unknown = true
}

// rejection returns the problems for which the resource is rejected, an empty list if
// it is accepted. Misspelled fields come first, even if they alone would only be
// warnings: the other problems may be their effects.
func (r *report) rejection() *problemList {
	if r.problems.empty() && (r.lenient || r.unknown.empty()) {
		return &problemList{}
	}
	if r.binary {
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

// warnUnapplied warns of a field of m that is judged, and that is not applied in this
// resource. name is that of the field, and at is its path.
func (r *report) warnUnapplied(m proto.Message, name protoreflect.Name, at, format string, args ...any) {
	switch {
	case r.byHand:
		r.warn(at, format, args...)
	case !r.stored:
		r.unapplied.addOnce(string(nameOf(m))+"."+string(name), at, text.Clip(fmt.Sprintf(format, args...)))
	}
}

// remarks returns the warnings of a resource that is accepted. What a management server
// sends has the fields that are not applied in Item.Unapplied instead.
func (r *report) remarks() *problemList {
	all := problemList{list: make([]Problem, 0, len(r.unknown.list)+len(r.warnings.list)), more: r.unknown.more}
	for _, p := range r.unknown.list {
		p.Reason += ": ignored"
		all.list = append(all.list, p)
	}
	all.append(&r.warnings)
	if !r.byHand {
		return &all
	}
	for _, u := range r.unapplied.list {
		all.append(&problemList{list: []Problem{u.problem()}})
	}
	return &all
}
