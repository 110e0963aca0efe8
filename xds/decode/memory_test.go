//go:build linux && !race

package decode_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// decodesInput makes the test a child that decodes what it is given.
const decodesInput = "LBD_TEST_DECODES"

// TestPeakMemory: no body, however it is made, takes more than a gibibyte to
// read, and one that is refused for its entries hardly more than itself.
func TestPeakMemory(t *testing.T) {
	if how := os.Getenv(decodesInput); how != "" {
		decodeInput(t, how)
		return
	}
	if testing.Short() {
		t.Skip("long: reads bodies that are as large as the limits permit")
	}
	const mib = 1 << 10 // as the kernel counts, in KiB
	objects := func(n int, one string) string {
		return `{"endpoints":[` + one + strings.Repeat(","+one, n-1) + `]}`
	}
	for _, c := range []struct {
		name, how, body string
		most            int
	}{
		{"refused JSON", "JSON", objects(10<<20, "{}"), 160 * mib},
		{"refused policy", "JSON", `{"policy":{"drop_overloads":[{}` + strings.Repeat(",{}", 10<<20) + `]}}`, 160 * mib},
		{"refused protobuf", "protobuf", strings.Repeat("\x12\x00", 16<<20), 160 * mib},
		{"refused bundle", "bundle protobuf", strings.Repeat("\x12\x00", 32<<20), 160 * mib},
		{"empty messages as JSON", "JSON", objects(decode.MaxJSONEntries/2-1, "{}"), 1024 * mib},
		{"unknown fields as JSON", "JSON", objects(decode.MaxJSONEntries/2-1, `{"a":1}`), 1024 * mib},
		{"metadata as JSON", "JSON", `{"endpoints":[{"metadata":{"filter_metadata":{"a":{"b":[0` + strings.Repeat(`,{"c":1}`, decode.MaxJSONEntries/2-10) + `]}}}}]}`, 1024 * mib},
		{"refused list as text", "text", strings.Repeat(":1\n", 10<<20), 1024 * mib},
		{"empty messages as protobuf", "protobuf", strings.Repeat("\x12\x00", decode.MaxProtobufEntries), 1024 * mib},
		{"the largest extension as JSON", "JSON", withExtension(decode.MaxExtensionEntries/2-1, decode.FormatJSON), 512 * mib},
		{"the largest extension as protobuf", "protobuf", withExtension(decode.MaxExtensionEntries, decode.FormatProtobuf), 512 * mib},
		{"a bundle of empty messages", "bundle protobuf", strings.Repeat("\x12\x00", 2*decode.MaxProtobufEntries), 1024 * mib},
		{"a bundle of empty objects", "bundle JSON", `{"resources":[{}` + strings.Repeat(",{}", 2*decode.MaxJSONEntries/2-2) + `]}`, 1024 * mib},
		{"the largest real assignment, with an unknown field", "JSON", strings.Replace(realistic("orders", decode.MaxEndpoints), `{"@type"`, `{"unknown":1,"@type"`, 1), 1024 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestPeakMemory$", "-test.v")
			child.Env = append(os.Environ(), decodesInput+"="+c.how, "GOGC=100") // as in a daemon
			child.Stdin = strings.NewReader(c.body)
			out, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, line, _ := bytes.Cut(out, []byte("VmHWM:"))
			var peak int
			if _, err := fmt.Sscan(string(line), &peak); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%d MiB for %d", peak>>10, len(c.body)>>20)
			if peak > c.most {
				t.Errorf("takes %d MiB, of at most %d", peak>>10, c.most>>10)
			}
		})
	}
}

// decodeInput decodes standard input, and prints what the kernel knows of the
// process.
func decodeInput(t *testing.T, how string) {
	t.Helper()
	var err error
	var body bytes.Buffer
	body.Grow(128 << 20)
	if _, err := body.ReadFrom(os.Stdin); err != nil {
		t.Fatal(err)
	}
	kind, format, ok := strings.Cut(how, " ")
	if !ok {
		kind, format = "", how
	}
	o := decode.Options{Format: decode.FormatJSON}
	switch format {
	case "protobuf":
		o.Format = decode.FormatProtobuf
	case "text":
		o.Format = decode.FormatText
	}
	if kind == "bundle" {
		_, err = decode.All(body.Bytes(), o)
	} else {
		_, err = decode.One(resource.TypeAssignment, body.Bytes(), o)
	}
	status, statusErr := os.ReadFile("/proc/self/status")
	if statusErr != nil {
		t.Fatal(statusErr)
	}
	fmt.Printf("%.100v\n%s\n", err, status)
}
