package decode

import (
	"errors"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

const (
	// placeBudget is how many bytes of JSON may be read again to find the places of
	// problems: the whole body once for each of them.
	placeBudget = 16 << 20
	// maxPlacedYAML is the largest YAML body that is read again, once for all.
	maxPlacedYAML = 1 << 20
)

// placeError fills in Line and Column of what an error reports about a body. single
// is true for a body that holds one resource, from whose top fields begin.
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

// Place fills in Line and Column of problems in a body, of as many as that is cheap
// for. single is true for a body that holds one resource, from whose top fields
// begin, though it may be in a DiscoveryResponse.
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

// enveloped reports whether a body has resources in it. A field that is not there
// is located at what would hold it.
func enveloped(l *text.Locator) bool {
	listLine, listColumn := l.Find("resources")
	line, column := l.Find("resources[0]")
	return line != listLine || column != listColumn
}
