package api

import (
	"fmt"
	"net/http"
	"net/url"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/service/fault"
)

// MaxNameBytes is the longest name of a cluster, and the longest ID of a lease.
const MaxNameBytes = 512

// pathName returns the name that a path holds under a route's parameter.
func pathName(r *http.Request, parameter string) (string, error) {
	name, err := pathParam(r.URL.RawPath != "", chi.URLParam(r, parameter))
	if err != nil {
		return "", refusal(fault.InvalidArgument, "path: %s: %v", parameter, err)
	}
	if wrong := badName(name); wrong != "" {
		return "", refusal(fault.InvalidArgument, "path: %s %s", parameter, wrong)
	}
	return name, nil
}

// pathParam decodes a path parameter as chi hands it: still encoded where the
// URL has a RawPath, decoded already where it has none.
func pathParam(raw bool, s string) (string, error) {
	if !raw {
		return s, nil
	}
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("%q is not percent-encoded as it should be", clip(s))
	}
	return decoded, nil
}

// badName says why s cannot be a name, or nothing.
func badName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxNameBytes:
		return fmt.Sprintf("is %d bytes long, of at most %d", len(s), MaxNameBytes)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return unprintable(s)
		}
	}
	return ""
}

func unprintable(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("holds the character %U, which cannot be printed", r)
		}
	}
	return ""
}
