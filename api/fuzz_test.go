package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{
		"", "orders", `"\/`, "\x00\x1f\x7f\b\f\n\r\t", "<a>&'", "grün €", "\u2028\u2029", "\xff\xc0\xaf", "a\xe2\x82", "\U0001f600", "\ufffd",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		noError(t, e.Encode(s))
		if got := string(appendString(nil, s)) + "\n"; got != want.String() {
			t.Errorf("%q: got %swant %s", s, got, want.String())
		}
	})
}

// A query is read as net/url reads it; what is refused has a reason that names
// no more of it than fits.
func FuzzReadQuery(f *testing.F) {
	for _, s := range []string{"a=1&b=2", "a", "a=&&b", "a=%zz", "%61=+%2B", "a=1&a=2", "b=1&b=2", "c", "a=%ff", "=", "a;b=1", "a=b=c", "h.x=1&h.x=2&h.=3&h"} {
		f.Add(s)
	}
	known := []parameter{{name: "a"}, {name: "b", repeats: true}, {name: ""}, {name: "h.", repeats: true, prefix: true}}
	f.Fuzz(func(t *testing.T, raw string) {
		got := url.Values{}
		err := readQuery(raw, known, func(name string, v value) string {
			if v.bare && v.text != "" {
				t.Errorf("%q: a bare %q has the value %q", raw, name, v.text)
			}
			got.Add(name+v.rest, v.text)
			return ""
		})
		want, wrong := url.ParseQuery(strings.ReplaceAll(raw, ";", "%3B"))
		if err != nil {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != fault.InvalidArgument || len(e.Detail) > 500 {
				t.Fatalf("%q: %v", raw, err)
			}
			bad := wrong != nil || len(want["a"]) > 1 || len(want[""]) > 1
			for name := range want {
				bad = bad || name != "a" && name != "b" && name != "" && !strings.HasPrefix(name, "h.")
			}
			if !bad {
				t.Errorf("%q is refused: %v", raw, err)
			}
			return
		}
		if wrong != nil {
			t.Fatalf("%q: net/url refuses it: %v", raw, wrong)
		}
		if got.Encode() != want.Encode() {
			t.Errorf("%q: got %v, want %v", raw, got, want)
		}
	})
}

// A name that is escaped into a path comes out as it was, whichever way the URL
// keeps it.
func FuzzPathParam(f *testing.F) {
	for _, s := range []string{"orders", "a/b", "a%b", "a%2Fb", "grün", "a b", "%", "..", "a+b", "a?b#c", "xds:///x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return
		}
		u, err := url.ParseRequestURI("/v1/clusters/" + url.PathEscape(name))
		noError(t, err)
		routed := u.RawPath // as chi does
		if routed == "" {
			routed = u.Path
		}
		got, err := pathParam(u.RawPath != "", strings.TrimPrefix(routed, "/v1/clusters/"))
		if err != nil || got != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	})
}

func FuzzParseTags(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a-json", "b"`, "a, b", "*", `"a`, ",,", `"a" "b"`, `W/`, `"a",`, "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		tags, err := parseTags("If-Match", []string{header})
		if err != nil {
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.InvalidArgument {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		if len(tags) == 0 {
			t.Fatalf("%q: no tags and no error", header)
		}
		// Written as RFC 9110 has it, they are read as the same.
		var strict []string
		for _, one := range tags {
			if strings.Contains(one.text, `"`) {
				t.Fatalf("%q: a tag holds a quote: %q", header, one.text)
			}
			s := `"` + one.text + `"`
			if one.weak {
				s = "W/" + s
			}
			strict = append(strict, s)
		}
		if len(tags) == 1 && tags[0].text == "*" && !tags[0].weak {
			return
		}
		again, err := parseTags("If-Match", strict)
		if err != nil || !slices.Equal(again, tags) {
			t.Errorf("%q: %v, then %v, %v", header, tags, again, err)
		}
	})
}
