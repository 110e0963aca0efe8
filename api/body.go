package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/quota"
)

// Maximum sizes of request bodies, in bytes.
const (
	// MaxResourceBytes limits a pushed resource.
	MaxResourceBytes = 32 << 20
	// MaxSnapshotBytes limits a snapshot.
	MaxSnapshotBytes = 64 << 20
	// MaxLeaseBytes limits the result of one lease.
	MaxLeaseBytes = 64 << 10
	// MaxLeasesBytes limits the results of many leases.
	MaxLeasesBytes = 4 << 20
)

// received is a short body that has been received. Its bytes are valid until the handler returns.
type received interface{ Bytes() []byte }

// readBody returns the body. A body whose Content-Length is too large is rejected before a
// caller that waits for 100 Continue sends it.
func readBody(w *recorder, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	if r.Body == http.NoBody {
		return nil, nil
	}
	if b, ok := r.Body.(received); ok {
		return b.Bytes(), nil
	}
	body, err := receive(w, http.MaxBytesReader(w, r.Body, most), r.ContentLength)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(most)
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok { // the quota of the caller
		return nil, refused
	}
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fault.Errorf(fault.InvalidArgument, "body: ends after %d of %d bytes", len(body), r.ContentLength)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.Errorf(fault.InvalidArgument, "body: not received in time")
	default:
		return nil, fault.Errorf(fault.InvalidArgument, "body: %v", err)
	}
}

// decodingFactor is how many times its size a body may take in memory while it is decoded and
// applied, besides itself.
const decodingFactor = 4

// receive reads a body. What it allocates counts against the quota of the caller, as it
// arrives: Content-Length alone takes no memory. A body that is decoded counts several times.
func receive(w *recorder, from io.Reader, length int64) ([]byte, error) {
	acquire := func(n int) error {
		if n <= maxSmallBody {
			return nil
		}
		return w.acquire(quota.Bytes, int64(n))
	}
	body := make([]byte, 0, min(max(length+1, 512), maxSmallBody))
	for {
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, acquire(decodingFactor * len(body))
		}
		if err != nil {
			return body, err
		}
		if len(body) == cap(body) {
			grown := 2 * cap(body)
			if length > 0 {
				grown = min(grown, int(length)+1)
			}
			grown = max(grown, cap(body)+512)
			if err := acquire(grown - cap(body)); err != nil {
				return body, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
	}
}

func tooLarge(most int64) error {
	return fault.Errorf(fault.TooLarge, "body: larger than %d bytes", most)
}

// rejectBody rejects a body where none is expected, because it would be ignored.
func rejectBody(w *recorder, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 {
		b, err := readBody(w, r, MaxLeaseBytes)
		if err != nil || len(b) == 0 {
			return err
		}
	}
	return fault.Errorf(fault.InvalidArgument, "body: must be empty; send parameters in the query")
}

// emptyBody accepts no body, or an empty JSON object, which some clients always send.
func emptyBody(w *recorder, r *http.Request) error {
	body, err := readBody(w, r, MaxLeaseBytes)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || len(members) > 0 || members == nil {
		return fault.Errorf(fault.InvalidArgument, "body: must be empty or {}; send parameters in the query")
	}
	return nil
}

// readJSON decodes a JSON body into v, and rejects unknown fields. An empty body leaves v
// unchanged.
func readJSON(w *recorder, r *http.Request, most int64, v any) error {
	body, err := readBody(w, r, most)
	if err != nil {
		return err
	}
	return decodeJSON(r.Header, body, v)
}

// decodeJSON is readJSON for a body that was read.
func decodeJSON(h http.Header, body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := wantJSON(h); err != nil {
		return err
	}
	if hasNull(body) {
		return fault.Errorf(fault.InvalidArgument, "body: null is not valid as the body, in a list, and as a number of load: leave it out")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fault.Errorf(fault.InvalidArgument, "body: %s", jsonReason(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault.Errorf(fault.InvalidArgument, "body: unexpected data after the JSON value, at byte %d", d.InputOffset())
	}
	return nil
}

// hasNull reports whether a body has a null that encoding/json would take for a zero value. As in proto3 JSON, a field
// that is null is absent; an element of a list and a value of a map must not be null. A body that is no JSON has none.
// It reads one token at a time: all values together would take many times the size of the body.
func hasNull(body []byte) bool {
	if !bytes.Contains(body, []byte("null")) || !json.Valid(body) { // valid JSON has at most 10,000 levels
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	within, key, atKey := []rune{'['}, "", false // '[' is a list, '{' an object and 'm' a map
	for token, err := d.Token(); err == nil; token, err = d.Token() {
		name, isText := token.(string)
		delim, _ := token.(json.Delim)
		switch {
		case token == nil && within[len(within)-1] != '{':
			return true
		case isText && atKey:
			key, atKey = name, false
			continue
		case delim == ']' || delim == '}':
			within = within[:len(within)-1]
		case delim == '{' && slices.Contains(picks.LoadMaps, strings.ToLower(key)):
			within = append(within, 'm')
		case delim != 0:
			within = append(within, rune(delim))
		}
		key, atKey = "", within[len(within)-1] != '['
	}
	return false
}

// jsonReason describes a decoding error without the terms of Go.
func jsonReason(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return e.Field + ": a JSON " + e.Value + " is not valid here"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON value does not end"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
