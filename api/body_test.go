package api

import (
	"strings"
	"testing"
)

func TestHasNull(t *testing.T) {
	for want, bodies := range map[bool][]string{
		true: {
			"null", "[null]", `{"a":[null]}`, `{"a":[[],{},null]}`, `{"a":{"b":[{"c":null},null]}}`, `{"a":[null],"a":1}`,
			`{"load":{"named_metrics":{"a":null}}}`, `{"Utilization":{"b":[],"a":null}}`, `[{"request_\u0063ost":{"":null}}]`,
		},
		false: {
			"", `{"a":null}`, `{"a":{"b":null}}`, `[{"a":null}]`, `{"null":"null"}`, `["null"]`, `{"utilization":null}`,
			`{"utilization":[{"a":null}]}`, `{"utilization":{"a":{"b":null}}}`, `{"utilization":{},"b":{"c":null}}`,
			`{"a":"utilization","b":{"c":null}}`, `["utilization",{"a":null}]`,
			"[null", "[null,]", "[null] 1", "null null", strings.Repeat("[", 10_001) + "null" + strings.Repeat("]", 10_001),
		},
	} {
		for _, body := range bodies {
			if hasNull([]byte(body)) != want {
				t.Errorf("%.80s: not %t", body, want)
			}
		}
	}
}
