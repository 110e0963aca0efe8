package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

var (
	headEnd       = []byte("\r\n\r\n")
	lineEnd       = []byte("\r\n")
	contentLength = []byte("content-length")
	transfer      = []byte("transfer-encoding")
	chunked       = []byte("chunked")
)

// response parses the response at the begin of b. It returns the number of its bytes, or
// 0 while it is incomplete. The body of a chunked response includes the chunk sizes.
func response(b []byte) (status, length int, body []byte, err error) {
	end := bytes.Index(b, headEnd)
	if end < 0 {
		return 0, 0, nil, nil
	}
	if end < len("HTTP/1.1 200") || !bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return 0, 0, nil, fmt.Errorf("not a response of HTTP/1: %.50q", b)
	}
	if status, err = strconv.Atoi(string(b[9:12])); err != nil {
		return 0, 0, nil, fmt.Errorf("not a status: %.50q", b)
	}
	size, isChunked := -1, false
	_, head, _ := bytes.Cut(b[:end+len(lineEnd)], lineEnd)
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, lineEnd)
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, contentLength):
			if size, err = strconv.Atoi(string(value)); err != nil || size < 0 {
				return 0, 0, nil, fmt.Errorf("invalid Content-Length: %q", value)
			}
		case bytes.EqualFold(name, transfer):
			isChunked = bytes.EqualFold(value, chunked)
		}
	}
	rest := b[end+len(headEnd):]
	switch {
	case isChunked:
		if size, err = chunks(rest); err != nil || size == 0 {
			return 0, 0, nil, err
		}
	case status == 204:
		size = 0
	case size < 0:
		return 0, 0, nil, errors.New("the response has neither Content-Length nor chunks")
	}
	if len(rest) < size {
		return 0, 0, nil, nil
	}
	return status, end + len(headEnd) + size, rest[:size], nil
}

// chunks returns the length of a chunked body without trailers, or 0 while it is
// incomplete.
func chunks(b []byte) (int, error) {
	at := 0
	for {
		n := bytes.Index(b[at:], lineEnd)
		if n < 0 {
			return 0, nil
		}
		size, err := strconv.ParseUint(string(b[at:at+n]), 16, 31)
		if err != nil {
			return 0, fmt.Errorf("invalid size of a chunk: %.20q", b[at:])
		}
		at += n + len(lineEnd) + int(size) + len(lineEnd)
		if at > len(b) {
			return 0, nil
		}
		if size == 0 {
			return at, nil
		}
	}
}
