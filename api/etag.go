package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// maxTags is the maximum number of entity tags in a header.
const maxTags = 100

// preconditions reads If-Match and If-None-Match of a change. It ignores the suffixes for
// representations.
func preconditions(h http.Header) (sources.Precondition, error) {
	var p sources.Precondition
	if values, ok := h["If-Match"]; ok {
		tags, err := parseTags("If-Match", values)
		if err != nil {
			return p, err
		}
		p.IfMatch = make([]string, len(tags))
		for i, t := range tags {
			p.IfMatch[i] = t.hash()
		}
	}
	if values, ok := h["If-None-Match"]; ok {
		if len(values) != 1 || strings.TrimSpace(values[0]) != "*" {
			return p, fault.Errorf(fault.InvalidArgument, "If-None-Match: only * is valid for a change")
		}
		p.IfNoneMatch = true
	}
	return p, nil
}

// unchanged reports whether If-None-Match has the resource: in the representation of
// suffix, or as its bare hash, which is the etag of a push.
func unchanged(h http.Header, hash, suffix string) (bool, error) {
	values, ok := h["If-None-Match"]
	if !ok {
		return false, nil
	}
	tags, err := parseTags("If-None-Match", values)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(tags, func(t tag) bool {
		return t.text == "*" || t.text == hash || t.text == hash+suffix
	}), nil
}

// strongTag is the ETag of a representation.
func strongTag(hash, suffix string) string { return `"` + hash + suffix + `"` }

// tag is one entity tag without its quotes.
type tag struct {
	text string
	weak bool
}

// hash returns the hash of the content. A weak tag, which must not match, has a hash that
// no content has.
func (t tag) hash() string {
	if t.weak {
		return "W/" + t.text
	}
	for _, r := range representations {
		if hash, ok := strings.CutSuffix(t.text, r.suffix); ok {
			return hash
		}
	}
	return t.text
}

// parseTags reads a list of entity tags, with or without quotes, or a single *.
func parseTags(name string, values []string) ([]tag, error) {
	wrong := func(why string) ([]tag, error) {
		return nil, fault.Errorf(fault.InvalidArgument, "%s: %q %s", name, fault.Clip(strings.Join(values, ", ")), why)
	}
	rest := strings.Join(values, ",")
	var tags []tag
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			break
		}
		if len(tags) == maxTags {
			return wrong("has more than 100 entity tags")
		}
		var t tag
		rest, t.weak = strings.CutPrefix(rest, "W/")
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if t.text, rest, ok = strings.Cut(quoted, `"`); !ok {
				return wrong("has an unterminated quote")
			}
			if rest = strings.TrimLeft(rest, " \t"); rest != "" && rest[0] != ',' {
				return wrong("has no comma between two entity tags")
			}
		} else {
			end := strings.IndexByte(rest, ',')
			if end < 0 {
				end = len(rest)
			}
			t.text = strings.TrimRight(rest[:end], " \t")
			rest = rest[end:]
			if t.text == "" || strings.ContainsAny(t.text, "\" \t") {
				return wrong("is not a list of entity tags")
			}
		}
		tags = append(tags, t)
	}
	if len(tags) == 0 {
		return wrong("has no entity tag")
	}
	if len(tags) > 1 && slices.Contains(tags, tag{text: "*"}) {
		return wrong("has * in a list")
	}
	return tags, nil
}
