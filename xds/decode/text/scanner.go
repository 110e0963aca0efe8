package text

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"
)

// Scanner reads a JSON text in one pass, value by value, without an error to report: it fails on what is not valid
// JSON, and on a value of another type than the one that is read. After that it returns nothing, and all loops end.
type Scanner struct {
	// Entries counts as Skim does.
	Entries int
	// Failed is true if the text is not as it was read.
	Failed bool

	body  []byte
	at    int
	depth int
	first bool // an object or a list begins here
}

// Scan returns a Scanner for a text, whose memory it shares with strings.
func Scan(body []byte) Scanner { return Scanner{body: body} }

// Fail ends the reading.
func (s *Scanner) Fail() {
	s.Failed = true
	s.body, s.at = nil, 0
}

// Peek returns the first byte of what comes next, or 0 at the end.
func (s *Scanner) Peek() byte {
	for s.at < len(s.body) {
		c := s.body[s.at]
		if c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.at++
	}
	return 0
}

// Begin reads the beginning of an object or a list. More has to be called then.
func (s *Scanner) Begin(c byte) {
	if s.Peek() != c {
		s.Fail()
		return
	}
	s.at++
	s.Entries++
	if s.depth++; s.depth > MaxDepth {
		s.Fail()
	}
	s.first = true
}

// More reports whether the object or list goes on with a member or an element, which has to be read then. Otherwise
// it reads the end of it.
func (s *Scanner) More(end byte) bool {
	c := s.Peek()
	first := s.first
	s.first = false
	switch {
	case c == end:
		s.at++
		s.depth--
		return false
	case c == 0:
	case first:
		return true
	case c == ',':
		s.at++
		s.Entries++
		return true
	}
	s.Fail()
	return false
}

// Name reads the name of a member.
func (s *Scanner) Name() []byte {
	name := s.String()
	s.Colon()
	return name
}

// Colon reads what follows a name.
func (s *Scanner) Colon() {
	if s.Peek() != ':' {
		s.Fail()
		return
	}
	s.at++
}

// String reads a string.
func (s *Scanner) String() []byte {
	if s.Peek() != '"' {
		s.Fail()
		return nil
	}
	from, ascii := s.at+1, true
	for i, c := range s.body[from:] {
		switch {
		case c == '"':
			text := s.body[from : from+i]
			if s.at = from + i + 1; !ascii && !utf8.Valid(text) {
				s.Fail()
			}
			return text
		case c == '\\':
			return s.escaped()
		case c < ' ':
			s.Fail()
			return nil
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.Fail()
	return nil
}

// escaped reads a string with escapes. It fails if there is a replacement character in it: invalid ones become one.
func (s *Scanner) escaped() []byte {
	from := s.at
	for s.at++; s.at < len(s.body) && s.body[s.at] != '"'; s.at++ {
		if s.body[s.at] == '\\' {
			s.at++
		}
	}
	var text string
	if s.at >= len(s.body) || json.Unmarshal(s.body[from:s.at+1], &text) != nil || bytes.ContainsRune([]byte(text), utf8.RuneError) {
		s.Fail()
		return nil
	}
	s.at++
	return []byte(text)
}

// Word reads null, true, false or a string with its quotes, as it is written, if it comes next.
func (s *Scanner) Word(word string) bool {
	s.Peek()
	if end := s.at + len(word); end <= len(s.body) && string(s.body[s.at:end]) == word {
		s.at = end
		return true
	}
	return false
}

// Uint32 reads a number that is written in digits alone.
func (s *Scanner) Uint32() uint32 {
	s.Peek()
	value, from := uint64(0), s.at
	for s.at < len(s.body) && s.at < from+10 && s.body[s.at]-'0' <= 9 {
		value = 10*value + uint64(s.body[s.at]-'0')
		s.at++
	}
	if n := s.at - from; n == 0 || value > math.MaxUint32 || n > 1 && s.body[from] == '0' {
		s.Fail()
		return 0
	}
	return uint32(value)
}

// Number reads a number, and returns it as it is written.
func (s *Scanner) Number() []byte {
	s.Peek()
	from := s.at
	for s.at < len(s.body) && strings.IndexByte("+-.0123456789eE", s.body[s.at]) >= 0 {
		s.at++
	}
	number := s.body[from:s.at]
	if !json.Valid(number) {
		s.Fail()
		return nil
	}
	return number
}

// End reads the end of the text, and reports whether it was read as it is.
func (s *Scanner) End() bool {
	if s.Peek(); s.at < len(s.body) {
		s.Fail()
	}
	return !s.Failed
}
