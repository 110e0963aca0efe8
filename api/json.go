package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// Header values that many answers share. They are never changed.
var (
	noStore     = []string{"no-store"}
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	textType    = []string{"text/plain; charset=utf-8"}
)

// writeJSON answers with v in one line: how things are now, which nobody is to
// keep.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = jsonType
	writeBody(w, status, encode(v))
}

// encode writes v in one line, <, > and & as they are. v is a value of this
// package's or the service's types, which always encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// writeBody answers with body at once. A caller that is gone is no error: there
// is nobody to tell.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

const hex = "0123456789abcdef"

// appendString appends s as a JSON string, as encoding/json writes it without
// its escapes for HTML: what is not UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	begin := 0 // of what is not copied yet
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				b = append(b, s[begin:i]...)
				b = append(b, `\ufffd`...)
			case r == '\u2028' || r == '\u2029': // JavaScript ends a line there
				b = append(b, s[begin:i]...)
				b = append(b, `\u202`...)
				b = append(b, hex[r&0xf])
			default:
				i += size
				continue
			}
			i += size
			begin = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[begin:i]...)
		b = appendEscape(b, c)
		i++
		begin = i
	}
	b = append(b, s[begin:]...)
	return append(b, '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	default:
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
	}
}
