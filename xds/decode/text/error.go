package text

import (
	"fmt"
	"strings"
)

// Error is why a text cannot be read.
type Error struct {
	Line     int // from 1; 0 if it is unknown
	Reason   string
	TooLarge bool // it would take too much memory to read
}

// Error returns the line and the reason.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// ErrEmpty is the error for a text without a value.
var ErrEmpty = &Error{Reason: "the body is empty"}

// maxWords limits a reason, in bytes: it may quote input.
const maxWords = 1024

// Clip shortens a text that quotes input to 1024 bytes.
func Clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "…"
}
