package ledger

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
)

// xdsScheme begins the full name of a target that is found by a Listener.
const xdsScheme = "xds:"

// TargetKey is the name of an xds target without what all such names have in
// common: "orders" of "xds:///orders", "xds:orders" and "orders"; "//traffic/orders"
// of "xds://traffic/orders", whose Listener is of the authority "traffic".
func TargetKey(name string) string {
	name = strings.TrimPrefix(name, xdsScheme)
	if after, ok := strings.CutPrefix(name, "///"); ok {
		return after
	}
	return name
}

// TargetName is the full name of an xds target: "xds:///orders" of "orders", as
// gRPC names it. One that has an authority keeps it: "xds://traffic/orders". It
// fails with InvalidArgument where that can be no target.
func TargetName(name string) (string, error) {
	key := TargetKey(name)
	full := xdsScheme + "///" + key
	wrong := ""
	switch authority, ok := strings.CutPrefix(key, "//"); {
	case key == "":
		wrong = "the name is empty"
	case ok:
		full = xdsScheme + key
		if host, rest, _ := strings.Cut(authority, "/"); host == "" || rest == "" {
			wrong = "the authority or the name is missing"
		}
	case key[0] == '/':
		wrong = "the name begins with a slash"
	}
	switch {
	case wrong != "":
	case len(full) > decode.MaxNameBytes:
		wrong = fmt.Sprintf("more than %d bytes", decode.MaxNameBytes)
	case !utf8.ValidString(full) || strings.ContainsFunc(full, func(r rune) bool { return !unicode.IsPrint(r) }):
		wrong = "unprintable characters"
	}
	if wrong != "" {
		return "", fault.Errorf(fault.InvalidArgument, "target %q: must be xds:///NAME or NAME (%s)", name, wrong).Of("", name)
	}
	return full, nil
}
