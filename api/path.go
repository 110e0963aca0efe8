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

// MaxNameBytes is the maximum length of a cluster name and of a lease ID.
const MaxNameBytes = 512

// pathName returns a name from a parameter of the route.
func pathName(r *http.Request, parameter string) (string, error) {
	name, err := pathText(r, parameter)
	if err != nil {
		return "", err
	}
	if wrong := badName(name); wrong != "" {
		return "", fault.Errorf(fault.InvalidArgument, "path: %s %s", parameter, wrong)
	}
	return name, nil
}

// pathText returns any text from a parameter of the route.
func pathText(r *http.Request, parameter string) (string, error) {
	text, err := pathParam(r.URL.RawPath != "", chi.URLParam(r, parameter))
	if err != nil {
		return "", fault.Errorf(fault.InvalidArgument, "path: %s: %v", parameter, err)
	}
	return text, nil
}

// pathParam decodes a path parameter of chi, which is encoded only if the URL has a RawPath.
func pathParam(raw bool, s string) (string, error) {
	if !raw {
		return s, nil
	}
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("%q is not valid percent-encoding", fault.Clip(s))
	}
	return decoded, nil
}

// badName returns why s is not a valid name, or an empty string.
func badName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxNameBytes:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), MaxNameBytes)
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
			return fmt.Sprintf("has the unprintable character %U", r)
		}
	}
	return ""
}
