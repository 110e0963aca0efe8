package text

import (
	"bytes"
	"fmt"
)

// MaxDepth is how deep JSON and YAML may nest.
const MaxDepth = 100

// Skimmed is what one look over a JSON text shows.
type Skimmed struct {
	Typed, Resources bool // the names @type and resources at the top
}

// Skim looks over body, which need not be valid JSON, and refuses what nests too
// deep or has more entries than limit: it would take too much to read. The error is an
// *Error.
func Skim(body []byte, limit int) (Skimmed, error) {
	var s Skimmed
	depth, deepest, entries := 0, 0, 0
	start := -1 // where the last string at the top begins
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			entries++
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			from := i + 1
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if depth == 1 && i < len(body) {
				start = from
				continue
			}
		case ':':
			if start < 0 {
				continue
			}
			switch name := body[start:]; {
			case bytes.HasPrefix(name, []byte(`@type"`)):
				s.Typed = true
			case bytes.HasPrefix(name, []byte(`resources"`)):
				s.Resources = true
			}
			start = -1
		case ',':
			entries++
			start = -1
		}
	}
	switch {
	case deepest > MaxDepth:
		return s, &Error{Reason: fmt.Sprintf("the body nests deeper than %d", MaxDepth)}
	case entries > limit:
		return s, &Error{TooLarge: true, Reason: fmt.Sprintf("the body has %d entries, of at most %d", entries, limit)}
	}
	return s, nil
}

// Offset turns a line and column, from 1, into an index into body.
func Offset(body []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(body[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return min(at+column-1, len(body))
}

// Position turns an index into body into a line and column, from 1.
func Position(body []byte, at int) (line, column int) {
	before := body[:at]
	return bytes.Count(before, []byte("\n")) + 1, at - bytes.LastIndexByte(before, '\n')
}
