package service

import "github.com/lbd-dev/lbd/xds/resource"

const (
	// locateBudget is how many bytes of JSON are read once more to find out where
	// problems stand: the body, for each of them.
	locateBudget = 16 << 20
	// maxLocatedYAML is the most YAML that is read once more, for all of them.
	maxLocatedYAML = 1 << 20
)

// sent is a body that was pushed.
type sent struct {
	body   []byte
	format Format
	// single tells that it is one resource, from whose top fields begin, though
	// it may stand in a DiscoveryResponse.
	single bool
}

// locate fills in where problems stand, of as many as that is cheap for.
func (s sent) locate(problems []Problem) []Problem {
	room := len(problems)
	switch {
	case s.format == JSON && len(s.body) > 0:
		room = min(room, locateBudget/len(s.body))
	case s.format == YAML && len(s.body) <= maxLocatedYAML:
	default:
		return problems
	}
	if room == 0 {
		return problems
	}
	l := resource.NewLocator(s.body, s.format)
	top := ""
	if s.single && enveloped(l) {
		top = "resources[0]."
	}
	for i := range problems[:room] {
		p := &problems[i]
		p.Line, p.Column = l.Locate(top + p.Field)
	}
	return problems
}

// warned fills in where warnings stand for whoever only looks: a push that is made
// does not read its body twice.
func warned(warnings []Problem, body sent, dryRun bool) []Problem {
	if !dryRun {
		return warnings
	}
	return body.locate(warnings)
}

// enveloped reports whether a body has resources in it: what is not there is
// located at what would hold it.
func enveloped(l *resource.Locator) bool {
	listLine, listColumn := l.Locate("resources")
	line, column := l.Locate("resources[0]")
	return line != listLine || column != listColumn
}
