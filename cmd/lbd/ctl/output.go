package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// escape replaces what could control a terminal or reorder its text (control and format characters,
// invalid UTF-8) by an escape such as \x1b. Names and messages of the daemon may have any character.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// escapeJSON replaces the same characters in JSON, where only strings have them, by \u escapes.
func escapeJSON(body []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(body) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// table is a text of aligned columns.
type table struct {
	header []string
	rows   [][]string
	names  []string // of the rows, for -o name
}

func newTable(header ...string) *table { return &table{header: header} }

// add adds a row whose name is its first cell.
func (t *table) add(cells ...string) { t.addNamed(cells[0], cells...) }

func (t *table) addNamed(name string, cells ...string) {
	t.rows, t.names = append(t.rows, cells), append(t.names, name)
}

// colors of states, as SGR parameters.
var colors = map[string]string{
	"READY": "32", "live": "32", "TRANSIENT_FAILURE": "31", "gone": "31", "EJECTED": "31", "UNHEALTHY": "31",
	"CONNECTING": "33", "IDLE": "33", "WARMING": "33",
}

// write prints the table, escaped. Empty cells are "-".
func (t *table) write(w io.Writer, color bool) {
	for _, line := range t.lines(color, math.MaxInt) {
		fmt.Fprintln(w, line)
	}
}

// lines returns the lines of the table, escaped and at most as wide as a screen.
func (t *table) lines(color bool, width int) []string {
	widths := make([]int, len(t.header))
	lines := append([][]string{t.header}, t.rows...)
	for _, line := range lines {
		for i, cell := range line {
			if line[i] = escape(cell); cell == "" {
				line[i] = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
	}
	texts := make([]string, len(lines))
	for n, line := range lines {
		var b strings.Builder
		left := width
		for i, cell := range line {
			sgr := colors[cell]
			cell = cut(cell+strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2), left)
			left -= utf8.RuneCountInString(cell)
			if word := strings.TrimRight(cell, " "); color && n > 0 && sgr != "" && word != "" {
				cell = "\x1b[" + sgr + "m" + word + "\x1b[0m" + cell[len(word):]
			}
			b.WriteString(cell)
		}
		texts[n] = strings.TrimRight(b.String(), " ")
	}
	return texts
}

// cut returns the beginning of a text, of at most n runes.
func cut(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// color reports whether the output may have colors: https://no-color.org.
func (s *session) color() bool {
	return isTerminal(s.stdout.to) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// printTables prints a result in the format of --output: JSON or YAML of the daemon, the names of the
// rows of the first table, or tables. Tables after the first one are printed if they have rows.
func (s *session) printTables(raw []byte, tables ...*table) error {
	if s.output != "table" {
		return s.print(raw, tables[0].names)
	}
	for i, t := range tables {
		if i > 0 && len(t.rows) == 0 {
			continue
		}
		if i > 0 {
			fmt.Fprintln(s.stdout)
		}
		t.write(s.stdout, s.color())
	}
	return nil
}

// print prints a result in another format than a table.
func (s *session) print(raw []byte, names []string) error {
	switch s.output {
	case "json":
		return s.printJSON(raw)
	case "yaml":
		// The YAML library neither reads nor escapes all such characters. JSON is YAML, too.
		unsafe := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
		body, err := text.ToYAML(raw)
		if err != nil || bytes.ContainsFunc(body, unsafe) {
			return s.printJSON(raw)
		}
		_, err = s.stdout.Write(body)
		return err
	default:
		for _, name := range names {
			fmt.Fprintln(s.stdout, escape(name))
		}
	}
	return nil
}

func (s *session) printJSON(raw []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.stdout, "%s\n", escapeJSON(b.Bytes()))
	return err
}

// percent returns a fraction in percent.
func percent(fraction float64) string { return decimal(100*fraction) + "%" }

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

// clock returns a time of the daemon in milliseconds, for a table.
func clock(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
