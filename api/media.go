package api

import (
	"bytes"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// representation is a format of resources.
type representation struct {
	format sources.Format
	// contentType is the Content-Type of responses.
	contentType string
	// suffix is the suffix of ETags.
	suffix string
	// types are the accepted media types, in order of preference.
	types []string
}

// representations has the default first.
var representations = []representation{
	{sources.JSON, "application/json", "-json", []string{"application/json"}},
	{sources.YAML, "application/yaml", "-yaml", []string{"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}},
	{sources.Protobuf, "application/x-protobuf", "-pb", []string{"application/x-protobuf", "application/protobuf"}},
}

// accepted returns the representation that Accept prefers; the first of equals, and the
// default if Accept allows none.
func accepted(h http.Header) *representation {
	accept := strings.Join(h.Values("Accept"), ",")
	best, most := &representations[0], 0.0
	if accept == "" {
		return best
	}
	for i := range representations {
		for _, name := range representations[i].types {
			if q := quality(accept, name); q > most {
				best, most = &representations[i], q
			}
		}
	}
	return best
}

// acceptsText reports whether Accept prefers text/plain to JSON, or lists it first with the
// same weight.
func acceptsText(h http.Header) bool {
	values := h["Accept"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "*/*" || values[0] == "application/json") {
		return false
	}
	accept := strings.Join(values, ",")
	text, json := quality(accept, "text/plain"), quality(accept, "application/json")
	return text > json || text == json && text > 0 && strings.HasPrefix(strings.TrimSpace(accept), "text/plain")
}

// acceptsGzip reports whether a caller takes a compressed answer.
func acceptsGzip(h http.Header) bool {
	return quality(strings.Join(h.Values("Accept-Encoding"), ","), "gzip") > 0
}

// quality returns the weight, 0 to 1, of a media type in Accept: that of the most specific
// range that matches.
func quality(accept, mediaType string) float64 {
	kind, _, _ := strings.Cut(mediaType, "/")
	exactness, weight := 0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		var exact int
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, mediaType):
			exact = 3
		case strings.EqualFold(name, kind+"/*"):
			exact = 2
		case name == "*/*", name == "*":
			exact = 1
		}
		if exact > exactness {
			exactness, weight = exact, qvalue(params)
		}
	}
	return weight
}

// qvalue returns the q parameter of a media range; 1 if it is absent or invalid.
func qvalue(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		if q, err := strconv.ParseFloat(text, 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}

// curlForm is the default Content-Type of curl --data-binary.
const curlForm = "application/x-www-form-urlencoded"

// listLine is the first line of a list of endpoints as text, after comments: it begins with an
// address, which no resource in YAML does.
var listLine = regexp.MustCompile(`^(?:\s*(?:#[^\n]*)?\n)*[ \t]*[^\s"'{}]+:[0-9]{1,5}(?:\s|$)`)

// formatOf returns the format of a pushed body, from Content-Type. If that is absent or
// curl's default, a body that begins with a brace is JSON, one that begins with an
// address is a list of endpoints, and any other is YAML.
func formatOf(h http.Header, body []byte) (sources.Format, error) {
	if err := plainBody(h); err != nil {
		return 0, err
	}
	contentType := h.Get("Content-Type")
	name, params, err := mime.ParseMediaType(contentType)
	switch {
	case contentType == "", err == nil && name == curlForm:
		switch {
		case bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")):
			return sources.JSON, nil
		case listLine.Match(body):
			return sources.Text, nil
		}
		return sources.YAML, nil
	case err != nil:
		return 0, unsupported("Content-Type %q is invalid", contentType)
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return 0, unsupported("charset %q is not supported: use UTF-8", charset)
	}
	for _, r := range representations {
		if slices.Contains(r.types, name) {
			return r.format, nil
		}
	}
	if name == "text/plain" {
		return sources.Text, nil
	}
	return 0, unsupported("Content-Type %q is not supported: send application/json, application/yaml, application/x-protobuf, or text/plain for a list of endpoints", contentType)
}

// plainBody rejects a compressed body.
func plainBody(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return unsupported("Content-Encoding %q is not supported: send the body uncompressed", encoding)
	}
	return nil
}

// wantJSON rejects a Content-Type other than JSON.
func wantJSON(h http.Header) error {
	if err := plainBody(h); err != nil {
		return err
	}
	contentType := h.Get("Content-Type")
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	if name, _, err := mime.ParseMediaType(contentType); err != nil || name != "application/json" && name != curlForm {
		return unsupported("Content-Type %q is not supported: send application/json", contentType)
	}
	return nil
}

func unsupported(format, value string) error {
	return fault.Errorf(fault.UnsupportedMedia, format, fault.Clip(value))
}
