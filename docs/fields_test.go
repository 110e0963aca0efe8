package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
)

var update = flag.Bool("update", false, "write docs/fields.md instead of comparing it")

const fieldsIntroduction = `# Fields of resources

What lbd does with each field of a [resource](glossary.md#resource). The tables are generated from those of the decoder
(` + "`go test ./docs -run TestFieldsAreDocumented -update`" + `), and contain every field of every message.

- **Applied** fields do what the xDS and gRPC documentation says. The effect of some depends on the rest of the
  resource: the table says when they are applied, rejected or cause a warning.
- Fields that are **not applied** are accepted. The answer to a push has one warning for each kind of them: the first
  place, and the number of others. lbd logs a field of a management server once per resource type, and lists it in
  [` + "`unapplied_fields`" + `](control-plane.md#fields-that-are-not-applied) of ` + "`GET /v1/xds`" + `. It never rejects the resource
  (NACK) because of it.
- **Unknown** fields, which no message has, are [rejected](resources.md#unknown-fields).

Messages in ` + "`google.protobuf`" + ` (durations, wrappers, structs) are values. The content of an ` + "`Any`" + ` is in the tables if
lbd reads it.
`

// fieldsPage is docs/fields.md as it should be.
func fieldsPage() string {
	var b strings.Builder
	b.WriteString(fieldsIntroduction)
	for message, uses := range decode.FieldTable {
		fmt.Fprintf(&b, "\n## %s\n", message)
		var applied, unused []string
		var rows strings.Builder
		for _, u := range uses {
			switch name := "`" + string(u.Field) + "`"; {
			case u.Applied && u.Words == "":
				applied = append(applied, name)
			case u.Applied:
				fmt.Fprintf(&rows, "| %s | %s |\n", name, u.Words)
			case u.Words != "":
				fmt.Fprintf(&rows, "| %s | not applied: %s |\n", name, u.Words)
			default:
				unused = append(unused, name)
			}
		}
		if len(uses) == 0 {
			b.WriteString("\nIt has no fields.\n")
		}
		if len(applied) > 0 {
			b.WriteString("\n" + wrapped("Applied: "+strings.Join(applied, ", ")+".") + "\n")
		}
		if rows.Len() > 0 {
			b.WriteString("\n| field | what lbd does |\n| --- | --- |\n" + rows.String())
		}
		if len(unused) > 0 {
			b.WriteString("\n" + wrapped("Not applied: "+strings.Join(unused, ", ")+".") + "\n")
		}
	}
	return b.String()
}

// wrapped breaks text into lines of at most 120 columns.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 120:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func TestFieldsAreDocumented(t *testing.T) {
	const file = "docs/fields.md"
	want := fieldsPage()
	if *update {
		noError(t, os.WriteFile(filepath.Join(root, file), []byte(want), 0o644))
	}
	if read(t, file) != want {
		t.Errorf("%s is not what the decoder's tables say: go test ./docs -run TestFieldsAreDocumented -update", file)
	}
}
