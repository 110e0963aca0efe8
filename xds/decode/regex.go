package decode

import (
	"regexp"
	"regexp/syntax"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// regexes compiles the regular expressions of a resource.
type regexes struct {
	*report
	size int // in instructions, of those that are written by hand
}

// wholeRegex compiles a safe_regex, which matches only whole texts.
func (v *regexes) wholeRegex(field, pattern string) *regexp.Regexp {
	if v.regex(field, pattern) == nil {
		return nil
	}
	re, err := resource.WholeRegex(pattern)
	if err != nil {
		v.notRegex(field, err) // WholeRegex's group nests it too deep
		return nil
	}
	return re
}

// regex compiles a regular expression of RE2's syntax.
func (v *regexes) regex(field, pattern string) *regexp.Regexp {
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

func (v *regexes) notRegex(field string, err error) {
	v.reject(field, "is no regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
}

// smallRegex rejects a pattern that would take too much memory to match: a short one may
// compile to a large program.
func (v *regexes) smallRegex(field, pattern string) bool {
	switch {
	case pattern == "":
		v.reject(field, "is empty")
		return false
	case len(pattern) > MaxRegexBytes:
		v.reject(field, "is %d bytes long, of at most %d", len(pattern), MaxRegexBytes)
		return false
	case v.size > MaxRegexInstructions:
		return false // reported already
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return true // regex reports it
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return true
	}
	if v.size += len(program.Inst); v.size > MaxRegexInstructions {
		v.reject(field, "makes the regular expressions exceed %d instructions: repeat less, as in {1,1000}", MaxRegexInstructions)
		return false
	}
	return true
}

func (v *regexes) stringMatch(field string, m *matcherv3.StringMatcher) resource.StringMatch {
	to := resource.StringMatch{CaseInsensitive: m.GetIgnoreCase()}
	name := ""
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		to.Value = p.Exact
	case *matcherv3.StringMatcher_Prefix:
		to.Kind, to.Value, name = resource.MatchPrefix, p.Prefix, "prefix"
	case *matcherv3.StringMatcher_Suffix:
		to.Kind, to.Value, name = resource.MatchSuffix, p.Suffix, "suffix"
	case *matcherv3.StringMatcher_Contains:
		to.Kind, to.Value, name = resource.MatchContains, p.Contains, "contains"
	case *matcherv3.StringMatcher_SafeRegex:
		if to.CaseInsensitive {
			v.warnByHand(field+".ignore_case", "is not applied: write (?i) in the regular expression")
		}
		return resource.StringMatch{Kind: resource.MatchRegex, Regex: v.wholeRegex(field+".safe_regex.regex", p.SafeRegex.GetRegex())}
	default:
		v.reject(field, "is none of exact, prefix, suffix, contains and safe_regex")
	}
	if name != "" && to.Value == "" {
		v.reject(join(field, name), "is empty")
	}
	if to.CaseInsensitive {
		to.Value = strings.ToLower(to.Value)
	}
	return to
}
