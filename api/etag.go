package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// maxTags is how many entity tags a header may list.
const maxTags = 100

// preconditions reads If-Match and If-None-Match of a change. Of the tags, the
// hash counts and the suffix for the representation does not.
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
			return p, refusal(fault.InvalidArgument, "If-None-Match: a change can be asked for with * only: if there is nothing yet")
		}
		p.IfNoneMatch = true
	}
	return p, nil
}

// unchanged reports whether a GET's If-None-Match has the resource already: in
// the representation of suffix, or by its bare hash, which is a push's etag.
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

// hash is what a change is compared by. That of a weak tag, which must match
// nothing, is one that no content has.
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
		return nil, refusal(fault.InvalidArgument, "%s: %q %s", name, clip(strings.Join(values, ", ")), why)
	}
	rest := strings.Join(values, ",")
	var tags []tag
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			break
		}
		if len(tags) == maxTags {
			return wrong("lists more than 100 entity tags")
		}
		var t tag
		rest, t.weak = strings.CutPrefix(rest, "W/")
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if t.text, rest, ok = strings.Cut(quoted, `"`); !ok {
				return wrong("has a quote that does not end")
			}
			if rest = strings.TrimLeft(rest, " \t"); rest != "" && rest[0] != ',' {
				return wrong("has something between two tags that is no comma")
			}
		} else {
			end := strings.IndexByte(rest, ',')
			if end < 0 {
				end = len(rest)
			}
			t.text = strings.TrimRight(rest[:end], " \t")
			rest = rest[end:]
			if t.text == "" || strings.ContainsAny(t.text, "\" \t") {
				return wrong("is no list of entity tags")
			}
		}
		tags = append(tags, t)
	}
	if len(tags) == 0 {
		return wrong("lists no entity tag")
	}
	if len(tags) > 1 && slices.Contains(tags, tag{text: "*"}) {
		return wrong("has * among others")
	}
	return tags, nil
}
