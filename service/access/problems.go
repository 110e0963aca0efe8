package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode/text"
)

// maxProblems is the maximum number of problems that an error lists.
const maxProblems = 20

// problems are those of an identity file.
type problems []problem

// problem is an error at a field, in the form of [text.Locator].
type problem struct {
	at  string
	err error
}

func (p *problems) add(at, format string, args ...any) {
	*p = append(*p, problem{at, fmt.Errorf(format, args...)})
}

// err joins the problems, each with its line.
func (p problems) err(data []byte) error {
	if len(p) == 0 {
		return nil
	}
	where := text.LocateYAML(data)
	var errs []error
	for _, problem := range p[:min(len(p), maxProblems)] {
		if line, _ := where.Find(problem.at); problem.at != "" && line > 0 {
			problem.err = fmt.Errorf("line %d: %w", line, problem.err)
		}
		errs = append(errs, problem.err)
	}
	if more := len(p) - maxProblems; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// wanted says what each field must be, if that is no whole number.
var wanted = map[string]string{ //nolint:gosec // texts, not credentials
	"quotas": "an object with a quota for each name",
	"tokens": "a list of entries", "certificates": "a list of entries", "unix_peers": "a list of entries",
	"name":     "a text",
	"roles":    "a list of roles, such as [pick, read]",
	"clusters": "a list of names and patterns, such as [orders*]; without the field, all clusters match",
	"expires":  "a time such as 2027-02-20T15:32:18Z; without the field, the identity does not expire",
	"quota":    "the name of an entry of quotas",
	"sha256":   "64 hexadecimal digits in quotes, the SHA-256 of the token",
	"san":      "dns:PATTERN or uri:PATTERN",
	"uid":      "a whole number from 0 to 4294967295", "gid": "a whole number from 0 to 4294967295",
	"requests_per_second": "a number", "burst": "a number",
	"max_ttl": "a duration such as 30s",
}

// decode decodes a JSON object at a field into a struct, each of whose fields has the name of its tag, and
// reports whether it could. label begins the problems. Fields of the file, which at is empty for, may be null.
func (p *problems) decode(at, label string, raw []byte, into any) bool {
	fields := make(map[string]reflect.Value)
	value := reflect.ValueOf(into).Elem()
	var names []string
	for _, f := range reflect.VisibleFields(value.Type()) {
		if name := f.Tag.Get("json"); name != "" {
			fields[name] = value.FieldByIndex(f.Index)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if raw[0] != '{' {
		p.add(at, "%smust be an object with some of %s", label, strings.Join(names, ", "))
		return false
	}
	before := len(*p)
	for _, m := range text.Members(raw) {
		place := strings.TrimPrefix(at+"."+m.Name, ".")
		must := cmp.Or(wanted[m.Name], "a whole number")
		field, ok := fields[m.Name]
		null := string(m.Value) == "null"
		switch {
		case !ok:
			p.add(place, "%s%s: unknown field%s", label, fault.Clip(m.Name), meant(m.Name, names))
		case null && at == "":
		case null:
			p.add(place, "%s%s: no value: must be %s", label, m.Name, must)
		case json.Unmarshal(m.Value, field.Addr().Interface()) != nil:
			p.add(place, "%s%s: must be %s (not %s)", label, m.Name, must, fault.Clip(text.Kind(m.Value)))
		}
	}
	return len(*p) == before
}

// meant suggests the name of a field for another one.
func meant(name string, known []string) string {
	if s := text.Closest(name, known); s != "" {
		return fmt.Sprintf(" (did you mean %s?)", s)
	}
	return ": must be one of " + strings.Join(known, ", ")
}
