package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/lbd-dev/lbd/service/fault"
)

// Limits of bodies, in bytes.
const (
	// MaxResourceBytes is the largest resource that can be pushed.
	MaxResourceBytes = 32 << 20
	// MaxSnapshotBytes is the largest body of many resources.
	MaxSnapshotBytes = 64 << 20
	// MaxLeaseBytes is the largest body about one lease.
	MaxLeaseBytes = 64 << 10
	// MaxLeasesBytes is the largest body about many leases.
	MaxLeasesBytes = 4 << 20
)

// readBody returns the whole body. One that is too long by its Content-Length
// is refused before any of it is sent by a caller that waits for 100 Continue.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	var b bytes.Buffer
	// What is only announced takes no memory.
	b.Grow(int(min(max(r.ContentLength+bytes.MinRead, bytes.MinRead), 1<<20)))
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	switch {
	case err == nil:
		return b.Bytes(), nil
	case isTooLarge(err):
		return nil, tooLarge(most)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refusal(fault.InvalidArgument, "body: it ends after %d of %d bytes", b.Len(), r.ContentLength)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusal(fault.InvalidArgument, "body: it did not come in time")
	default:
		return nil, refusal(fault.InvalidArgument, "body: it cannot be read: %v", err)
	}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

func tooLarge(most int64) error {
	return refusal(fault.TooLarge, "body: it is larger than %d bytes", most)
}

// noBody refuses a body where none is read: its sender meant something by it.
func noBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 {
		b, err := readBody(w, r, MaxLeaseBytes)
		if err != nil || len(b) == 0 {
			return err
		}
	}
	return refusal(fault.InvalidArgument, "body: there should be none: parameters belong in the query")
}

// emptyBody accepts no body, or an empty JSON object: what clients send that always
// send one. Anything else its sender meant something by.
func emptyBody(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, MaxLeaseBytes)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || len(members) > 0 || members == nil {
		return refusal(fault.InvalidArgument, "body: it must be empty, or {}: parameters belong in the query")
	}
	return nil
}

// readJSON reads a JSON body into v. No body at all leaves v as it is; a field
// that v does not have is refused.
func readJSON(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	body, err := readBody(w, r, most)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	if err := wantJSON(r.Header); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refusal(fault.InvalidArgument, "body: %s", jsonReason(err))
	}
	if d.More() {
		return refusal(fault.InvalidArgument, "body: something follows the JSON value at byte %d", d.InputOffset())
	}
	return nil
}

// jsonReason says what is wrong in words that do not speak of Go.
func jsonReason(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return e.Field + ": a JSON " + e.Value + " does not belong here"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON value does not end"
	}
	const prefix = "json: "
	if s := err.Error(); len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):]
	}
	return err.Error()
}
