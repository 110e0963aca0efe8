package text_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

func TestFromYAML(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"a: [yes, Off, n, TRUE, False, ~, null, Null]", `{"a":["yes","Off","n",true,false,null,null,null]}`},
		{"[tRUE, nO, .Nan, 'yes', \"~\", 1 2]", `["tRUE","nO",".Nan","yes","~","1 2"]`},
		{"[1, -0, +7, 0, 0o7, 0x1F, 0b101, -0b11, 1_000, 0x1_F, 0o8]", `[1,0,7,0,7,31,"0b101","-0b11","1_000","0x1_F","0o8"]`},
		{"[9223372036854775808, 99999999999999999999, .5, 1., 1e3, -1.5E-7]", `[9223372036854775808,99999999999999999999,0.5,1,1e3,-1.5E-7]`},
		{"[1.10, 70696e67, '70696e67', '.inf', \"010\", +1.5, -.5]", `[1.10,70696e67,"70696e67",".inf","010",1.5,-0.5]`},
		{"[1e400, 2001-01-01, 12:30, 0.0.0.0, 1.2.3, 0755f, .nano]", `["1e400","2001-01-01","12:30","0.0.0.0","1.2.3","0755f",".nano"]`},
		{`[!!str 5, !!int "5", !!float 5, !!bool "true", !!null ~, !!binary aGk=, !own 5]`, `["5",5,5,true,null,"hi","5"]`},
		{"{b: 1, a: |\n  x\n  y\n, 7: é, no: \"<\\t\"}", ""},
		{"b: 1\na: |\n  x\n  y\n7: é\nno: \"<\\t\"", `{"7":"é","a":"x\ny\n","b":1,"no":"\u003c\t"}`},
		{"a: &a {x: 1}\nb: {<<: *a, w: *a}\nc: {<<: [{x: 3}, {z: 4}]}", `{"a":{"x":1},"b":{"w":{"x":1},"x":1},"c":{"x":3,"z":4}}`},
		{"a: &a {x: 1, y: 1}\nb: {x: 2, <<: *a}\nc: {<<: *a, y: 2}", `{"a":{"x":1,"y":1},"b":{"x":2,"y":1},"c":{"x":1,"y":2}}`},
		{"a: &a {x: 1}\nb: &b {<<: *a, x: 2, y: 2}\nc: {<<: [*a, *b], <<: {z: 3}}", `{"a":{"x":1},"b":{"x":2,"y":2},"c":{"x":1,"y":2,"z":3}}`},
		{"\ufeffa: 1\n---\n", `{"a":1}`},
		{"%YAML 1.2\n---\na: no", `{"a":"no"}`},
		{"\ufeff# of a tool\n\n%YAML 1.1\n--- {a: 1}\n", `{"a":1}`},
	} {
		got, err := text.FromYAML([]byte(c.yaml), nil)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %s, %v, want %s", c.yaml, got, err, c.want)
		}
	}
}

func TestWhatIsNoYAML(t *testing.T) {
	var chain strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&chain, "a%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	for _, c := range []struct{ yaml, want string }{
		{"", "the body is empty"},
		{"# nothing\n--- ~\n", "the body is empty"},
		{"a: 1\n--- b", "the body holds several documents, where one is wanted"},
		{"a:\n  b:\n    - c\n    d: e\n", "line 4: did not find expected '-' indicator"},
		{"a: 1\nb: *c", "line 2: unknown anchor 'c' referenced"},
		{"a: 1\nb: {x: 1,\n x: 2}\na: 3\n1: a\n1: b", `line 3: key "x" already set in map; line 4: key "a" already set in map; line 6: key "1" already set in map`},
		{"a: {<<: {x: 1, x: 2}, x: 3}", `line 1: key "x" already set in map`},
		{"[.inf]", "line 1: .inf is a number that JSON does not have: put a string in quotes"},
		{"[010]", "line 1: 010 begins with 0, which is octal for some programs: write the number without it, or a string in quotes"},
		{"%YAML 2.0\n--- a", "line 2: found incompatible YAML document"},
		{"[!!bool no]", "cannot decode !!str `no` as a !!bool"},
		{"? [a]\n: b", `invalid map key: ["a"]`},
		{"{~: 1}", "<nil> is no name of a field"},
		{"<<: 1", "map merge requires map or sequence of maps as the value"},
		{"[!!int x]", "cannot decode !!str `x` as a !!int"},
		{"[!!binary x]", "!!binary value contains invalid base64 data"},
		{"&a [*a]", "anchor 'a' value contains itself"},
		{"&a {x: {<<: *a}}", "anchor 'a' value contains itself"},
		{"a: &a {<<: {<<: *a}}", "anchor 'a' value contains itself"},
		{"a: &a {x: {<<: {<<: [*a]}}}\nb: {<<: *a}", "anchor 'a' value contains itself"},
		{"a: &a [" + strings.Repeat("x, ", 1000) + "]\nb: &b [*a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b]", "aliases make the body grow too much: write it out"},
		{"a0: &a0 {}\n" + chain.String(), "aliases make the body grow too much: write it out"},
	} {
		got, err := text.FromYAML([]byte(c.yaml), nil)
		if _, ok := errors.AsType[*text.Error](err); !ok || err.Error() != c.want {
			t.Errorf("%.100s: %.100s, %v, want %s", c.yaml, got, err, c.want)
		}
	}
}

func TestToYAML(t *testing.T) {
	const want = "a9:\n- 1.5\n- b: \"2\"\n  c: |\n    x\n    y\na10: \"yes\"\nz: {}\n"
	got, err := text.ToYAML([]byte(`{"z":{},"a10":"yes","a9":[1.5,{"c":"x\ny\n","b":"2"}]}`))
	if string(got) != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// A text that is converted in parts is what it would be at once.
func TestLargeToYAML(t *testing.T) {
	const n = 5000
	list := func(element, separator string) string {
		return strings.TrimSuffix(strings.Repeat(element+separator, n), separator)
	}
	elements, inYAML := list(`{"c":"x\n\n y\n","b":["2"]}`, ","), list("- b:\n  - \"2\"\n  c: |\n    x\n\n     y\n", "")
	under := func(indent, text string) string {
		return strings.ReplaceAll(indent+strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+indent)+"\n", "\n"+indent+"\n", "\n\n")
	}
	got, err := text.ToYAML([]byte(`{"z":1,"a10":[` + elements + `],"a9":{"yes":[{"k":[` + elements + `]},{"v":[[` + elements + `],{}]}]}}`))
	want := "a9:\n  \"yes\":\n  - k:\n" + under("    ", inYAML) + "  - v:\n    - " + strings.TrimSpace(under("      ", inYAML)) + "\n    - {}\na10:\n" + inYAML + "z: 1\n"
	if string(got) != want || err != nil {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}
