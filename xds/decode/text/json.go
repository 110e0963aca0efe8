package text

import (
	"bytes"
	"fmt"
)

// MaxDepth limits the nesting of JSON and YAML.
const MaxDepth = 100

// CheckSize rejects body, which need not be valid JSON, with an *Error if it nests too deep
// or has more entries than limit.
func CheckSize(body []byte, limit int) error {
	depth, deepest, entries := 0, 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			entries++
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case ',':
			entries++
		}
	}
	switch {
	case deepest > MaxDepth:
		return &Error{Reason: fmt.Sprintf("the body nests deeper than %d", MaxDepth)}
	case entries > limit:
		return &Error{TooLarge: true, Reason: fmt.Sprintf("the body has %d entries, of at most %d", entries, limit)}
	}
	return nil
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
