package decode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestPauseEndsDecoding: in each format, a long input calls Pause, and its error ends the decoding.
func TestPauseEndsDecoding(t *testing.T) {
	assignment := realistic("orders", 1000)
	d, err := decode.One(resource.TypeAssignment, []byte(assignment), decode.Options{})
	noError(t, err)
	all := func(f decode.Format, body string) func(decode.Options) error {
		return func(o decode.Options) error {
			o.Format = f
			_, err := decode.All([]byte(body), o)
			return err
		}
	}
	one := func(f decode.Format, body string) func(decode.Options) error {
		return func(o decode.Options) error {
			o.Format = f
			_, err := decode.One(resource.TypeAssignment, []byte(body), o)
			return err
		}
	}
	list := strings.Repeat("- 10.0.0.1:80\n", 1000)
	for name, read := range map[string]func(decode.Options) error{
		"JSON":              one(decode.FormatJSON, assignment),
		"JSON of unknown":   one(decode.FormatJSON, strings.Replace(assignment, "{", `{"x":1,`, 1)),
		"YAML":              one(decode.FormatYAML, list),
		"YAML with aliases": one(decode.FormatYAML, "x: &a {b: 1}\ny: ["+strings.Repeat("*a,", 2000)+"]"),
		"YAML, one key":     one(decode.FormatYAML, strings.Repeat("a: 1\n", 1000)),
		"protobuf":          one(decode.FormatProtobuf, string(d.Raw)),
		"a bundle":          all(decode.FormatJSON, `{"resources":[`+assignment+"]}"),
		"a bundle as YAML":  all(decode.FormatYAML, `{"resources":[`+assignment+"]}"),
		"a management server": func(o decode.Options) error {
			o.Origin = decode.FromServer
			_, err := decode.Resource(resource.TypeAssignment, &anypb.Any{TypeUrl: resource.TypeAssignment.URL(), Value: d.Raw}, o)
			return err
		},
	} {
		calls, left := 0, errors.New("the caller left")
		count := func() error { calls++; return nil }
		if err := read(decode.Options{Pause: count}); errors.Is(err, left) || calls == 0 {
			t.Errorf("%s: %d pauses, %v", name, calls, err)
		}
		for _, end := range []int{0, calls / 2, calls - 1} {
			n := 0
			err := read(decode.Options{Pause: func() error {
				if n++; n > end {
					return fmt.Errorf("pause %d: %w", n, left)
				}
				return nil
			}})
			if !errors.As(err, new(*decode.StoppedError)) || !errors.Is(err, left) || n != end+1 {
				t.Errorf("%s: ends with pause %d of %d, and %v", name, n, calls, err)
			}
		}
	}
}

// realistic is an assignment as JSON whose endpoints bear what those of a
// service registry do.
func realistic(name string, endpoints int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"@type":%q,"cluster_name":%q,"endpoints":[{"locality":{"region":"r","zone":"a"},"load_balancing_weight":1,"lb_endpoints":[`, assignmentType, name)
	for i := range endpoints {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"endpoint":{"address":{"socket_address":{"address":"10.%d.%d.%d","port_value":8080}},`+
			`"hostname":"host-%d.example.com","health_check_config":{"port_value":9000}},"health_status":"HEALTHY",`+
			`"metadata":{"filter_metadata":{"envoy.lb":{"version":"1.2","canary":false}}},"load_balancing_weight":1}`, i>>16, i>>8&255, i&255, i)
	}
	b.WriteString("]}]}")
	return b.String()
}
