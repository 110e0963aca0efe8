package ctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"orders-é日本":         "orders-é日本",
		"\x1b[31mred\x1b[0m": `\x1b[31mred\x1b[0m`,
		"a\nb\tc\x7f":        `a\nb\tc\x7f`,
		"\u009b2J":           `\u009b2J`,
		"x\u202ey":           `x\u202ey`,
		"\xff\xfe":           `\xff\xfe`,
		"\ufffd":             "\ufffd",
		"\U000e0001":         `\U000e0001`,
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
		body, err := json.Marshal(in)
		noError(t, err)
		var same string
		safe := escapeJSON(body)
		if err := json.Unmarshal(safe, &same); err != nil || same != string([]rune(in)) {
			t.Errorf("%q as JSON: %s: %q, %v", in, safe, same, err)
		}
		if strings.ContainsAny(string(safe), "\x1b\u009b\u202e") {
			t.Errorf("%q as JSON is not escaped: %q", in, safe)
		}
	}
}

// TestOutputIsEscaped: in every format, also of names that lbd itself would reject.
func TestOutputIsEscaped(t *testing.T) {
	t.Parallel()
	const name = "a\x1b]0;b\x07\u009bc"
	raw, err := json.Marshal(map[string]string{"name": name})
	noError(t, err)
	for _, format := range []string{"table", "json", "yaml", "name"} {
		var out strings.Builder
		s := &session{output: format, stdout: &output{to: &out}}
		table := newTable("NAME")
		table.add(name)
		if err := s.printTables(raw, table); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07\u009b") || !strings.Contains(out.String(), "]0;b") {
			t.Errorf("%s: %q", format, out.String())
		}
		for _, escaped := range []string{`\u001b`, `\u009b`, `\u202e`, `\u2028`, `\u0000`, `\ufeff`} { // escaped by the daemon
			out.Reset()
			if err := s.print([]byte(`{"name":"`+escaped+`"}`), nil); err != nil {
				t.Errorf("%s: %v", format, err)
			}
			if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("%s of %s: %q", format, escaped, out.String())
			}
		}
	}
	r := &refusal{problem: problem{Detail: name, Code: name, Errors: []rule{{Field: name, Reason: name}}, Holders: []holder{{Owner: name}}}}
	if text := r.Error(); strings.ContainsAny(text, "\x1b\x07\u009b") || strings.Count(text, "]0;b") != 5 {
		t.Errorf("problem: %q", text)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := newTable("NAME", "STATE", "WHY")
	table.add("é", "READY", "")
	table.add("long\x1b", "gone", "b")
	var plain, colored strings.Builder
	table.write(&plain, false)
	table.write(&colored, true)
	if want := "NAME      STATE  WHY\né         READY  -\nlong\\x1b  gone   b\n"; plain.String() != want {
		t.Errorf("%q, want %q", plain.String(), want)
	}
	if !strings.Contains(colored.String(), "\x1b[32mREADY\x1b[0m  -\n") {
		t.Errorf("colored: %q", colored.String())
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	r := newEventReader(bufio.NewReaderSize(strings.NewReader(
		"retry: 1000\n\nevent: heartbeat\ndata: {}\n\n: comment\nevent: event\r\nid: 7\r\ndata: a\r\ndata:"+long+"\r\n\r\nevent: cut\ndata: off\n"), 16))
	for _, want := range []event{{name: "heartbeat", data: []byte("{}")}, {id: "7", name: "event", data: []byte("a\n" + long)}} {
		got, err := r.next()
		if err != nil || got.id != want.id || got.name != want.name || !bytes.Equal(got.data, want.data) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if e, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("an incomplete event: %+v, %v", e, err)
	}
}

// TestRemedies: there are words for every code of the contract.
func TestRemedies(t *testing.T) {
	t.Parallel()
	_, schema, _ := strings.Cut(string(lbd.OpenAPI), "\n    Problem:\n")
	_, codes, _ := strings.Cut(schema, "\n        code:\n")
	codes, _, _ = strings.Cut(codes, "\n          type: string")
	all := regexp.MustCompile(`(?m)^ +- ([a-z_]+)$`).FindAllStringSubmatch(codes, -1)
	if len(all) < 20 {
		t.Fatalf("found only %v in the contract", all)
	}
	known := map[string]bool{}
	for _, m := range all {
		known[m[1]] = true
		if (&refusal{problem: problem{Code: m[1]}}).remedy() == "" {
			t.Errorf("no remedy for %s", m[1])
		}
	}
	for code := range remedies {
		if !known[code] {
			t.Errorf("the contract does not have the code %s", code)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		problem problem
		want    int
	}{
		{problem{Status: 503, Code: "no_ready_endpoint"}, exitNegative},
		{problem{Status: 404, Code: "no_route"}, exitNegative},
		{problem{Status: 404, Code: "unknown_cluster"}, exitRefused},
		{problem{Status: 429, Code: "rate_limited"}, exitRefused},
		{problem{Status: 503, Code: "overloaded"}, exitFailed},
		{problem{Status: 500, Code: "of_a_later_version"}, exitFailed},
	} {
		if got := (&refusal{problem: c.problem}).ExitCode(); got != c.want {
			t.Errorf("%+v: exit code %d, want %d", c.problem, got, c.want)
		}
	}
}

func TestSettingsPath(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for dir, want := range map[string]string{
		"": "/home/me/.config/lbd/config.yaml", "/x": "/x/lbd/config.yaml", "relative": "/home/me/.config/lbd/config.yaml",
	} {
		t.Setenv("XDG_CONFIG_HOME", dir)
		if got, err := settingsPath(); err != nil || got != want {
			t.Errorf("XDG_CONFIG_HOME=%s: %s, %v; want %s", dir, got, err, want)
		}
	}
}

func TestSegment(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"orders": "orders", "a/b?c": "a%2Fb%3Fc", "watch": "%77atch", "..": "%2E%2E", "xds:///a": "xds:%2F%2F%2Fa",
	} {
		if got := segment(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
