// Package docs_test compares the documentation with the code: what it links to,
// names and shows must exist.
package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/lbd-dev/lbd/examples/custompolicy"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// root is the repository.
const root = ".."

// files returns the files below a folder of the repository that have one of the
// suffixes, by their paths from root.
func files(t *testing.T, under string, suffixes ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(root, under), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".venv", "bin", "node_modules", "target", "testdata", "vendor"}, d.Name()):
			return fs.SkipDir
		case !d.IsDir() && slices.Contains(suffixes, filepath.Ext(path)):
			relative, err := filepath.Rel(root, path)
			found = append(found, relative)
			return err
		}
		return nil
	})
	noError(t, err)
	if len(found) == 0 {
		t.Fatalf("no files with %v under %q", suffixes, under)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	noError(t, err)
	return string(text)
}

// pages returns the text of the README, CONTRIBUTING and docs, by file.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{"README.md": read(t, "README.md"), "CONTRIBUTING.md": read(t, "CONTRIBUTING.md")}
	for _, file := range files(t, "docs", ".md") {
		texts[file] = read(t, file)
	}
	return texts
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	scheme   = regexp.MustCompile(`^[a-z]+:`)
)

// anchors returns the anchors that GitHub generates for the headings of a page.
func anchors(text string) []string {
	var names []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, h[1]))
	}
	return names
}

// broken returns the relative links of a page whose file or anchor does not exist.
func broken(t *testing.T, file, text string) []string {
	t.Helper()
	var bad []string
	text = codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	for _, l := range link.FindAllStringSubmatch(text, -1) {
		if scheme.MatchString(l[1]) {
			continue
		}
		path, anchor, _ := strings.Cut(l[1], "#")
		to := file
		if path != "" {
			to = filepath.Join(filepath.Dir(file), path)
		}
		if _, err := os.Stat(filepath.Join(root, to)); err != nil {
			bad = append(bad, l[1])
			continue
		}
		if anchor != "" && !slices.Contains(anchors(read(t, to)), anchor) {
			bad = append(bad, l[1])
		}
	}
	return bad
}

var (
	startsDaemon = regexp.MustCompile(`^(\$ )?(?:bin/)?(lbd|control-plane)( .*)? &$`)
	waitsForIt   = regexp.MustCompile(`^(\$ )?((?:bin/)?lbd healthcheck .*--wait=|until curl )`)
	// kill does not end what go run has started, and without & no further command runs.
	startsChild = regexp.MustCompile(`^\$ go run .*(&|control-plane)$`)
)

// impatient returns the lines that start a daemon in the background and are not
// followed by a wait until it is ready, or that start one which cannot be ended.
func impatient(text string) []string {
	var found []string
	lines := append(strings.Split(text, "\n"), "")
	for i, l := range lines[:len(lines)-1] {
		if startsChild.MatchString(l) || startsDaemon.MatchString(l) && !waitsForIt.MatchString(lines[i+1]) {
			found = append(found, l)
		}
	}
	return found
}

// TestCommandsWaitForTheDaemon: pasted commands do not call a daemon before it
// listens.
func TestCommandsWaitForTheDaemon(t *testing.T) {
	for _, file := range files(t, "", ".md") {
		for _, l := range impatient(read(t, file)) {
			t.Errorf("%s: no `lbd healthcheck --wait=5s` follows %q", file, l)
		}
	}
	text := "$ bin/lbd --data= 2>lbd.log &\n$ curl localhost:8080/pick\n$ bin/lbd &\n$ bin/lbd healthcheck --wait=5s\n$ go run ./x &\n"
	if got := impatient(text); !slices.Equal(got, []string{"$ bin/lbd --data= 2>lbd.log &", "$ go run ./x &"}) {
		t.Errorf("impatient are %q", got)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range files(t, "", ".md") {
		for _, l := range broken(t, file, read(t, file)) {
			t.Errorf("%s: %s: link target not found", file, l)
		}
	}
}

// TestGlossary: each page links to the glossary, and each of its terms is linked from
// a page.
func TestGlossary(t *testing.T) {
	const glossary = "docs/glossary.md"
	var all strings.Builder
	for file, text := range pages(t) {
		if file == glossary {
			continue
		}
		if !strings.Contains(text, "glossary.md") {
			t.Errorf("%s does not link to the glossary", file)
		}
		all.WriteString(text)
	}
	for _, term := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(read(t, glossary), -1) {
		if a := strings.ReplaceAll(strings.ToLower(term[1]), " ", "-"); !strings.Contains(all.String(), "glossary.md#"+a+")") {
			t.Errorf("no page links to the term %s", term[1])
		}
	}
}

func TestBrokenLinksAreSeen(t *testing.T) {
	text := "[a](overload.md#shortages) [b](nowhere.md) [c](#no-such-heading) ![d](concepts/none.svg)\n```\n[e](none)\n```\n`[f](none)` [g](https://example.org/none)\n"
	want := []string{"nowhere.md", "#no-such-heading", "concepts/none.svg"}
	if got := broken(t, "docs/README.md", text); !slices.Equal(got, want) {
		t.Errorf("broken are %q, and should be %q", got, want)
	}
}

func TestNamedFilesAndTargetsExist(t *testing.T) {
	path := regexp.MustCompile(`^[a-z][\w/-]*/[\w-]+\.(go|json|yaml|yml|sh|svg)$`)
	makefile := read(t, "Makefile")
	for file, text := range pages(t) {
		for _, span := range codeSpan.FindAllString(fence.ReplaceAllString(text, ""), -1) {
			span = strings.Trim(span, "`")
			if path.MatchString(span) {
				if _, err := os.Stat(filepath.Join(root, span)); err != nil {
					t.Errorf("%s names the file %s, which does not exist", file, span)
				}
			}
			if target, ok := strings.CutPrefix(span, "make "); ok && !strings.Contains(makefile, "\n"+target+":") {
				t.Errorf("%s names %s, which the Makefile does not have", file, span)
			}
		}
	}
}

func TestPicturesAreSmallAndWellFormed(t *testing.T) {
	const most = 20 << 10
	for _, file := range files(t, "docs", ".svg") {
		text := read(t, file)
		if len(text) > most {
			t.Errorf("%s has %d bytes, of at most %d", file, len(text), most)
		}
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", file, err)
				break
			}
		}
	}
}

func TestExampleResourcesAreGood(t *testing.T) {
	formats := map[string]decode.Format{
		".json": decode.FormatJSON, ".yaml": decode.FormatYAML, ".yml": decode.FormatYAML, ".pb": decode.FormatProtobuf,
	}
	for _, file := range files(t, "examples", ".json", ".yaml", ".yml", ".pb") {
		if name := filepath.Base(file); name == "package.json" || name == "package-lock.json" || name == "composer.json" {
			continue
		}
		b, err := decode.All([]byte(read(t, file)), decode.Options{
			Origin: decode.ByHand, Format: formats[filepath.Ext(file)], Bare: true,
			Policies: func(name string) *resource.PolicyTraits {
				return map[string]*resource.PolicyTraits{custompolicy.Name: {}}[name]
			},
		})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, i := range b.Items {
			if i.Assignment != nil && i.Assignment.Usable() == 0 {
				t.Errorf("%s: %s has no usable endpoint", file, i.Key)
			}
		}
	}
}

// TestReadmesFileIsWithoutWarnings: the file in the README passes a push and a check
// without a warning.
func TestReadmesFileIsWithoutWarnings(t *testing.T) {
	const name = "orders.yaml"
	file := regexp.MustCompile(`(?ms)^cat > ` + name + ` <<'EOF'\n(.*?)^EOF$`).FindStringSubmatch(read(t, "README.md"))
	if file == nil {
		t.Fatalf("README.md has no %s", name)
	}
	o := decode.Options{Format: decode.FormatYAML, Bare: true, Name: "orders"}
	pushed, err := decode.One(resource.TypeAssignment, []byte(file[1]), o)
	if err != nil || len(pushed.Warnings) != 0 || len(pushed.Notes) == 0 {
		t.Errorf("pushed: %+v, %v", pushed, err)
	}
	checked, err := decode.All([]byte(file[1]), o)
	if err != nil || len(checked.Warnings) != 0 || len(checked.Items) != 1 || checked.Items[0].Key.Name != "orders" {
		t.Errorf("checked: %+v, %v", checked, err)
	}
}

// TestPackagesAreDescribed: the table of CONTRIBUTING.md has each package of these folders.
func TestPackagesAreDescribed(t *testing.T) {
	text := read(t, "CONTRIBUTING.md")
	for _, folder := range []string{"api", "service", "xds"} {
		for _, file := range files(t, folder, ".go") {
			if dir := filepath.Dir(file); !strings.Contains(text, "["+dir+"](") && !strings.Contains(text, "`"+dir+"`") {
				t.Errorf("CONTRIBUTING.md does not list %s", dir)
			}
		}
	}
}
