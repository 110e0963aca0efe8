package resource

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// wholePrefix and wholeSuffix make a pattern match whole texts only.
const (
	wholePrefix = "^(?:"
	wholeSuffix = ")$"
)

// wholeRegex compiles a safe_regex, which matches whole texts only.
func (v *verdict) wholeRegex(field, pattern string) *regexp.Regexp {
	if v.regex(field, pattern) == nil {
		return nil
	}
	re, err := regexp.Compile(wholePrefix + pattern + wholeSuffix)
	if err != nil {
		v.notRegex(field, err) // it nests too deep with what is around it
		return nil
	}
	return re
}

// pattern is what a wholeRegex was compiled from.
func pattern(re *regexp.Regexp) string {
	return strings.TrimSuffix(strings.TrimPrefix(re.String(), wholePrefix), wholeSuffix)
}

// regex compiles a regular expression of RE2's syntax.
func (v *verdict) regex(field, pattern string) *regexp.Regexp {
	if v.byHand && !v.smallRegex(field, pattern) {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		v.notRegex(field, err)
		return nil
	}
	return re
}

func (v *verdict) notRegex(field string, err error) {
	v.refuse(field, "is no regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
}

// smallRegex refuses what would take too much memory to match: a short pattern
// may stand for a large program.
func (v *verdict) smallRegex(field, pattern string) bool {
	switch {
	case pattern == "":
		v.refuse(field, "is empty")
		return false
	case len(pattern) > MaxRegexBytes:
		v.refuse(field, "is %d bytes long, of at most %d", len(pattern), MaxRegexBytes)
		return false
	case v.regexSize > MaxRegexInstructions:
		return false // it is said already
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return true // it is told when it is compiled
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return true
	}
	if v.regexSize += len(program.Inst); v.regexSize > MaxRegexInstructions {
		v.refuse(field, "makes the regular expressions stand for more than %d instructions: "+
			"repeat less, as in {1,1000}", MaxRegexInstructions)
		return false
	}
	return true
}
