package decode

import (
	"errors"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

const (
	// placeBudget limits the bytes of JSON that are read again to locate problems: the
	// whole body once for each of them.
	placeBudget = 16 << 20
	// maxPlacedYAML limits the YAML body that is read again, once for all problems.
	maxPlacedYAML = 1 << 20
)

// placeError sets Line and Column in an error about a body. single is as in Place.
func placeError(err error, body []byte, f Format, single bool) {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		Place(body, f, single, invalid.Problems)
	}
	if syntax, ok := errors.AsType[*SyntaxError](err); ok && f == FormatYAML && syntax.Line == 0 && syntax.Field != "" {
		at := []Problem{{Field: syntax.Field}}
		Place(body, f, false, at)
		syntax.Line, syntax.Column = at[0].Line, at[0].Column
	}
}

// Place sets Line and Column of problems in a body, of as many as is cheap. single is true
// for a body with one resource, from whose top fields begin, though it may be in a
// DiscoveryResponse.
func Place(body []byte, f Format, single bool, lists ...[]Problem) {
	room := 0
	for _, list := range lists {
		room += len(list)
	}
	switch {
	case f == FormatJSON && len(body) > 0:
		room = min(room, placeBudget/len(body))
	case f == FormatYAML && len(body) <= maxPlacedYAML:
	default:
		return
	}
	if room == 0 {
		return
	}
	l := text.LocateJSON(body)
	if f == FormatYAML {
		l = text.LocateYAML(body)
	}
	top := ""
	if single && enveloped(l) {
		top = "resources[0]."
	}
	for _, list := range lists {
		for i := range list[:min(len(list), room)] {
			list[i].Line, list[i].Column = l.Find(top + list[i].Field)
		}
		room -= min(len(list), room)
	}
}

// enveloped reports whether a body has resources in it. An absent field is located at the
// object that lacks it.
func enveloped(l *text.Locator) bool {
	listLine, listColumn := l.Find("resources")
	line, column := l.Find("resources[0]")
	return line != listLine || column != listColumn
}
