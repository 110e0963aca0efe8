package text

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// compareYAML compares both readers of YAML, and reports whether the one-pass reader read the text.
func compareYAML(t *testing.T, body []byte) bool {
	t.Helper()
	got, ok := scanYAML(body, func() {})
	if !ok {
		return false
	}
	if want, err := parseYAML(body, func() {}); err != nil || string(got) != string(want) {
		t.Fatalf("%q: %q, want %q, %v", body, got, want, err)
	}
	return true
}

const assignmentYAML = `# the endpoints
---
cluster_name: orders   # the name
endpoints:
- locality: {region: eu-west1, zone: "a", sub_zone: ''}
  lb_endpoints:
  - endpoint:
      address:
        socket_address: {address: 10.0.0.1, port_value: 8080}

      hostname: a.example.com
    health_status: HEALTHY
    load_balancing_weight: 3
    metadata:
      filter_metadata:
        lbd:
          ttl: 30s
        "envoy.lb": {"hash_key":"k", x: [1, 1.50, {}, [], true, null, no]}
  - {endpoint: {address: {socket_address: {address: "::1", port_value: 80}}}}
  load_balancing_weight:
    - - a
      - b: 'it: is'
        c:
    -
      - d
policy:
`

func TestOrdinaryYAMLTakesOnePass(t *testing.T) {
	for _, body := range []string{
		assignmentYAML, "a: b", "- a\n- b: 1\n  c: 2\n", "---\n- 10.0.0.1:80 2 eu/a\n- h:1", "a:\n- 1\n-\n- 2\nb:\n  -  c: 1\n     d: 2\n",
		"a: 0\nb: 0.5\nc: 10.0.0.1\nd: 1h\ne: yes\nf: 'x'\ng: \"<\"\nh: a b#c\ni: a:b # c\n", "a: 0x10\nb: 0o7\nc: 0b1\nd: 1_000\ne: 1.\nf: 2001-01-01\ng: 999999999999999999\nh: 1.10\ni: 30seconds\nj: 10-0-0-1-of-the-cluster.example\nk: 1.2.e3\nl: 00.1.1", "z: 1\n\"a\": 2\n'm': {y: 1, x: 2}\n",
	} {
		if !compareYAML(t, []byte(body)) {
			t.Errorf("%q: gave up", body)
		}
	}
}

// TestOnePassYAMLPauses: the members of each mapping around a long one may have to be moved.
func TestOnePassYAMLPauses(t *testing.T) {
	calls := 0
	if _, ok := scanYAML([]byte("b: {d: 1, c: 2}\na: 1"), func() { calls++ }); !ok || calls != 2 {
		t.Errorf("%d pauses for two mappings, read is %v", calls, ok)
	}
}

// TestOnePassGivesUpOnYAML: what has an error, or another form, is for the parser.
func TestOnePassGivesUpOnYAML(t *testing.T) {
	for _, body := range []string{
		"", "a", "null", "a: b: c", "a: b\n c", "a: b\n  c: d", "a:\n b: 1\n  c: 2", "- a\n b", "a: &x b", "a: *x", "a: !!str b", "a: |\n  b", "a: >-\n  b",
		"a: b\n---\nc: d", "a: b\n...\n", "%YAML 1.2\n---\na: b", "? a\n: b", "a: \"b\\n\"", "a: 'b''c'", "a: \"b\n  c\"", "a: [b,\n c]", "a: [b, ]", "a: {b}", "a: {b: }",
		"a:\tb", "a: b\tc", "a: é", "a: b # é", "a: 010", "a: 0x1e", "a: 1e3", "a: 1e999", "a: -1", "a: +1", "a: .5", "a: 12345678901234567890",
		"a: True", "a: NULL", "Null: b", "<<: {a: b}", "a: b\na: c", "a: {b: 1, b: 2}", "a: - b", "- a: b\n- c\n d: e", "a: \"b\"c", "a: b\r\nc: d", "\ufeffa: b", "a: [b]: c", "a: {b:c,d: e}",
		"a: [b:]", "a: {? b: c}", "a: @b", "a: `b", strings.Repeat("a", 2000) + ": b", strings.Repeat("- ", 200) + "a", "a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200),
		"a" + strings.Repeat(" ", 1100) + ": 1", `x: {"a"` + strings.Repeat(" ", 1100) + ": 1}", "x: {a" + strings.Repeat(" ", 1100) + ": 1}",
		"- a\nb: c", "  a: b\nc: d", "a:\n  - b\n - c",
	} {
		if compareYAML(t, []byte(body)) {
			t.Errorf("%q: read in one pass", body)
		}
	}
}

var yamlParts = append(strings.Split("a¦b¦\"c\"¦'d'¦: ¦:¦- ¦-¦\n¦\n  ¦\n    ¦\n- ¦\n  - ¦ ¦{¦}¦[¦]¦, ¦,¦#¦ # ¦1¦0¦10.0.0.1¦8080¦1.5¦true¦null¦yes¦30s¦---\n¦...¦?¦&a ¦*a¦!!str ¦'¦\"¦\\¦a: b¦a:\n  ¦<<¦<¦é"+
	"¦\t¦\r\n¦_¦~¦0x1¦0b1¦0o7¦1_0¦08¦1e3¦1.¦123456789¦-1¦2001-01-01¦.¦%¦@¦|¦>¦|\n  ¦: >-\n  ", "¦"), strings.Repeat(" ", 1100))

// TestYAMLReadersAgree is a part of FuzzYAML for each run of the tests.
func TestYAMLReadersAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	read := 0
	for range 20_000 {
		if compareYAML(t, randomYAML(random)) {
			read++
		}
	}
	if read < 1000 {
		t.Errorf("%d read in one pass", read)
	}
}

// randomYAML returns some parts in a row, or in place of parts of a real text.
func randomYAML(random *rand.Rand) (body []byte) {
	if random.IntN(2) == 0 {
		for range 1 + random.IntN(12) {
			body = append(body, yamlParts[random.IntN(len(yamlParts))]...)
		}
		return body
	}
	body = []byte(assignmentYAML)
	for range 1 + random.IntN(3) {
		i := random.IntN(len(body))
		k := min(len(body), i+random.IntN(4))
		body = append(append(body[:i:i], yamlParts[random.IntN(len(yamlParts))]...), body[k:]...)
	}
	return body
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte(assignmentYAML))
	random := rand.New(rand.NewPCG(2, 0))
	for range 100 {
		f.Add(randomYAML(random))
	}
	f.Fuzz(func(t *testing.T, body []byte) { compareYAML(t, body) })
}
