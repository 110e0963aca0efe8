package text_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// pointed takes the marks out of a text, each a digit in «», and returns where
// they stood.
func pointed(marked string) (body string, at map[string]string) {
	at = map[string]string{}
	for {
		before, rest, ok := strings.Cut(marked, "«")
		if !ok {
			return marked, at
		}
		mark, after, _ := strings.Cut(rest, "»")
		at[mark] = fmt.Sprintf("%d:%d", strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n"))
		marked = before + after
	}
}

// find returns where a field of a text stands.
func find(yaml bool, body, field string) (line, column int) {
	if yaml {
		return text.LocateYAML([]byte(body)).Find(field)
	}
	return text.LocateJSON([]byte(body)).Find(field)
}

func TestLocate(t *testing.T) {
	const (
		asJSON = "\n" + `«0»{"version": "é\"{[,", «v»"resources":	[
	«1»{«t»"@type": "x", «c»"clusterName": 7}, «2»{"a": [ [«d»1, «e»2], null ] ,
	«m»"filterMetadata"   : {"lbd.x" : {«w»"connect": 1}} } ] }`
		asYAML = `# a comment
«0»version: "é"
«v»resources:
- «1»«t»"@type": x
  «c»clusterName: 7
- «2»{é: é, a: [ [«d»1, «e»2], null ], «m»filterMetadata: {"lbd.x": {«w»connect: 1}}}
`
		merged = `
«0»x-base: &base
  «p»priority: 1
x-more: &more {<<: *base, «z»zone: b}
list:
- «1»<<: *base
- «2»<<: [*more]
  «a»other: *more
`
	)
	for _, c := range []struct {
		name string
		yaml bool
		text string
		want map[string]string // from field to mark
	}{
		{"JSON", false, asJSON, nil},
		{"YAML", true, asYAML, nil},
		{"JSON as YAML", true, strings.ReplaceAll(asJSON, "\t", " "), nil},
		{"Windows' line ends", false, strings.ReplaceAll(asJSON, "\n", "\r\n"), nil},
		{"merged mappings", true, merged, map[string]string{
			"list[0].priority": "p", "list[1].priority": "p", "list[1].zone": "z", "list[1].other.zone": "z",
			"list[1].other.priority": "p", "list[0].zone": "1",
		}},
	} {
		want := c.want
		if want == nil {
			want = map[string]string{
				"": "0", "resources": "v", "resources[0]": "1", "resources[0].@type": "t", "resources[0].cluster_name": "c",
				"resources[1]": "2", "resources[1].a[0][0]": "d", "resources[1].a[0][1]": "e",
				"resources[1].filter_metadata": "m", `resources[1].filter_metadata["lbd.x"].connect`: "w",
				// as far as it goes
				"nonce": "0", "resources[2]": "v", "resources[-1]": "v", "resources.x": "v", "resources[x]": "v",
				"resources[0].endpoints[3]": "1", "resources[0].cluster_name.x": "c", "resources[0].cluster_name[0]": "c",
				"resources[1].a[0][2]": "", `resources[1].filter_metadata["lbd.x"].none`: "",
			}
		}
		body, at := pointed(c.text)
		for field, mark := range want {
			line, column := find(c.yaml, body, field)
			got := fmt.Sprintf("%d:%d", line, column)
			if mark != "" && got != at[mark] {
				t.Errorf("%s: %s is at %s, want %s (%s)", c.name, field, got, at[mark], mark)
			}
			if mark == "" && (line < 2 || column == 0) {
				t.Errorf("%s: %s is at %s, want what is there of it", c.name, field, got)
			}
		}
	}
}

func TestLocateUnknownPositions(t *testing.T) {
	for _, c := range []struct {
		yaml bool
		body string
	}{
		{false, "\x0a\x01o"},
		{false, ""},
		{false, `{"a":1,"b`},
		{false, `{"a":[1`},
		{true, ""},
		{true, "a: [\n"},
		{true, "# nothing\n"},
	} {
		if line, column := find(c.yaml, c.body, "x.y"); line != 0 || column != 0 {
			t.Errorf("%q: %d:%d", c.body, line, column)
		}
	}
}

// A search in mappings that merge each other many times over comes to an end.
func TestLocateAmongAliasesThatGrow(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 60; i++ {
		all := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", ")
		fmt.Fprintf(&b, "a%d: &a%d {<<: [%s], y: [%s]}\n", i, i, all, all)
	}
	b.WriteString("loop: &loop {<<: *loop, self: [*loop]}\n")
	for field, want := range map[string]string{
		"a59.none": "60:1", "a59.x": "1:10", "a59.y[0].y[0].none": "59:82", "loop.none": "61:1", "loop.self[0].self[0].self": "61:25",
	} {
		line, column := find(true, b.String(), field)
		if got := fmt.Sprintf("%d:%d", line, column); got != want {
			t.Errorf("%s at %s, want %s", field, got, want)
		}
	}
}
