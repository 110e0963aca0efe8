package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// ConfigReader reads a policy's JSON config as in gRPC's service config, and collects
// findings.
type ConfigReader struct {
	policy   string
	text     json.RawMessage
	applied  map[string]any
	findings []resource.ConfigFinding
}

// Read reads the config's members into the pointers in applied, by name: to bool,
// float64, string, time.Duration, uint32 or uint64. It reads those in ignored as well,
// which the policy does not apply.
//
// As in gRPC, which uses encoding/json, case is ignored in names, and null means
// absent.
func (r *ConfigReader) Read(applied, ignored map[string]any) {
	r.applied = applied
	into := maps.Clone(applied)
	maps.Copy(into, ignored)
	var members map[string]json.RawMessage
	if json.Unmarshal(r.text, &members) != nil {
		r.Invalid("", "is %s: the config of %s must be an object", r.text, r.policy)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		target, ok := foldedMember(into, name)
		if !ok {
			r.find(resource.FindingUnknown, name, "unknown field")
			r.findings[len(r.findings)-1].Known = slices.Sorted(maps.Keys(into))
			continue
		}
		if wanted := readMember(members[name], target); wanted != "" {
			r.Invalid(name, "is %s: it must be %s", members[name], wanted)
		}
	}
}

// Invalid rejects the config because of a member.
func (r *ConfigReader) Invalid(member, format string, args ...any) {
	r.find(resource.FindingInvalid, member, format, args...)
}

// InvalidByHand is Invalid for a hand-written config.
func (r *ConfigReader) InvalidByHand(member, format string, args ...any) {
	r.Invalid(member, format, args...)
	r.findings[len(r.findings)-1].ByHand = true
}

// Warn warns of a member.
func (r *ConfigReader) Warn(member, format string, args ...any) {
	r.find(resource.FindingWarning, member, format, args...)
}

// WarnByHand is Warn for a hand-written config.
func (r *ConfigReader) WarnByHand(member, format string, args ...any) {
	r.Warn(member, format, args...)
	r.findings[len(r.findings)-1].ByHand = true
}

func (r *ConfigReader) find(kind resource.FindingKind, member, format string, args ...any) {
	r.findings = append(r.findings, resource.ConfigFinding{Kind: kind, Member: member, Text: fmt.Sprintf(format, args...)})
}

// err joins the findings that gRPC would also reject.
func (r *ConfigReader) err() error {
	var all []error
	for _, f := range r.findings {
		if f.Kind == resource.FindingInvalid && !f.ByHand {
			all = append(all, fmt.Errorf("%s: %s %s", r.policy, f.Member, f.Text))
		}
	}
	return errors.Join(all...)
}

// canonical returns the normal form of the config, with defaults; empty if the policy
// has no config.
func (r *ConfigReader) canonical() (string, error) {
	if len(r.applied) == 0 {
		return "", nil
	}
	members := maps.Clone(r.applied)
	for name, target := range members {
		if d, ok := target.(*time.Duration); ok {
			text, err := protojson.Marshal(durationpb.New(*d))
			if err != nil {
				return "", fmt.Errorf("write %s: %w", name, err)
			}
			members[name] = json.RawMessage(text)
		}
	}
	text, err := json.Marshal(members)
	return string(text), err
}

// foldedMember looks a name up in any case.
func foldedMember(into map[string]any, name string) (target any, ok bool) {
	for known, target := range into {
		if strings.EqualFold(known, name) {
			return target, true
		}
	}
	return nil, false
}

// readMember reads a member's value. If the value is wrong, it returns what is
// expected.
func readMember(text json.RawMessage, target any) (wanted string) {
	var err error
	if period, ok := target.(*time.Duration); ok {
		var d durationpb.Duration
		if err = protojson.Unmarshal(text, &d); err == nil {
			*period = d.AsDuration()
		}
	} else {
		err = json.Unmarshal(text, target)
	}
	if err == nil {
		return ""
	}
	switch target.(type) {
	case *time.Duration:
		return `a duration in seconds, such as "1.5s"`
	case *uint32:
		return "a whole number from 0 to 4294967295"
	case *uint64:
		return "a whole number of at least 0"
	case *float64:
		return "a number"
	case *bool:
		return "true or false"
	default:
		return "a string"
	}
}
