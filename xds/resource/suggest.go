package resource

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// didYouMean begins the suggestion in a problem about an unknown field.
const didYouMean = "(did you mean "

// maxSuggested is the longest name that a suggestion is looked for, in bytes.
const maxSuggested = 64

// unknownOf is the reason of a problem: what is called owner has no field of a name.
// suggested is what was probably meant, or empty.
func unknownOf(owner, suggested string) string {
	if suggested == "" {
		return "unknown field of " + owner
	}
	return "unknown field " + didYouMean + suggested + "?)"
}

// suggestField returns the field of md that a name was probably meant to be, in
// lowerCamelCase if the name is written so, or empty. A name that md does not have
// but one of the messages in it does is suggested with its path.
func suggestField(md protoreflect.MessageDescriptor, name string) string {
	names := make([]string, 0, 2*md.Fields().Len())
	spelled := func(fd protoreflect.FieldDescriptor) string {
		if strings.ToLower(name) != name {
			return fd.JSONName()
		}
		return string(fd.Name())
	}
	inner := ""
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		names = append(names, spelled(fd))
		if fd.Kind() != protoreflect.MessageKind || fd.IsList() || fd.IsMap() || ownJSON(fd.Message()) {
			continue
		}
		if within := fieldNamed(fd.Message(), name); within != nil && inner == "" {
			inner = spelled(fd) + "." + spelled(within)
		}
	}
	if own := Closest(name, names); own != "" {
		return own
	}
	return inner
}

// Closest returns the known name that a misspelled one was probably meant to be, or
// empty: the one that it takes the fewest edits to, or the only one whose first words
// it is.
func Closest(name string, known []string) string {
	if len(name) > maxSuggested {
		return ""
	}
	plain := strings.NewReplacer("_", "", "-", "")
	wanted := strings.ToLower(plain.Replace(name))
	if len(wanted) < 3 {
		return ""
	}
	best, fewest := "", min(max(1, len(wanted)/4), 3)+1
	begun, begins := "", 0
	for _, k := range known {
		other := strings.ToLower(plain.Replace(k))
		if n := edits(wanted, other, fewest); n < fewest {
			best, fewest = k, n
		}
		if rest, ok := strings.CutPrefix(k, name); ok && rest != "" && (rest[0] < 'a' || rest[0] > 'z') {
			begun, begins = k, begins+1
		}
	}
	if best == "" && begins == 1 {
		return begun
	}
	return best
}

// edits counts the letters to insert, delete, replace or swap with their neighbor
// to make b of a (optimal string alignment); it may stop counting at limit.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := 1
			if a[i] == b[j] {
				replace = 0
			}
			row[j+1] = min(last[j]+replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
