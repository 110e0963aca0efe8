package decode_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
)

// Every field that a refusal names is found in the body.
func TestLocateFindsWhatDecodingRefuses(t *testing.T) {
	body := "version: '1'\nresources:\n- '@type': " + clusterType + "\n  name: a\n  type: STATIC\n- '@type': " + assignmentType +
		"\n  clusterName: b\n  endpoints:\n  - lbEndpoints:\n    - endpoint:\n        address: {socketAddress: {address: 'a:1', portValue: 0}}\n"
	_, err := decode.All([]byte(body), decode.Options{Format: decode.FormatYAML})
	var invalid *decode.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	l := text.LocateYAML([]byte(body))
	var got []string
	for _, p := range invalid.Problems {
		line, column := l.Find(p.Field)
		got = append(got, fmt.Sprintf("%d:%d", line, column))
	}
	if want := "[5:3 11:35 11:51]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s: %v", got, want, err)
	}
}
