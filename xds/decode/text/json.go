package text

import (
	"bytes"
	"fmt"
)

// MaxDepth limits the nesting of JSON and YAML.
const MaxDepth = 100

// Skimmed is the result of Skim.
type Skimmed struct {
	Typed, Resources bool // the names @type and resources at the top
}

// Skim scans body, which need not be valid JSON, and rejects it, with an *Error, if it nests
// too deep or has more entries than limit.
func Skim(body []byte, limit int) (Skimmed, error) {
	var s Skimmed
	depth, deepest, entries := 0, 0, 0
	start := -1 // of the last string at the top
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

// Offset converts a line and column, from 1, to an index into body.
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

// Position converts an index into body to a line and column, from 1.
func Position(body []byte, at int) (line, column int) {
	before := body[:at]
	return bytes.Count(before, []byte("\n")) + 1, at - bytes.LastIndexByte(before, '\n')
}
