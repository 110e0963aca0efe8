package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/proxy.md"

// TestCommandsOfThePage runs the commands of docs/proxy.md whose tools are here.
func TestCommandsOfThePage(t *testing.T) {
	if err := lbd.Push("orders", upstream(t, show)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t)
	ran := 0
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "orders.lbd/items/7") || !strings.Contains(line, "8088") || strings.Contains(line, "|") {
			continue
		}
		tool := regexp.MustCompile(`(curl|perl|php|python3) -`).FindStringSubmatch(line)
		if tool == nil {
			continue
		}
		if _, err := exec.LookPath(tool[1]); err != nil {
			t.Logf("%s is not installed", tool[1])
			continue
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "localhost:8088", p.forward))
		out, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "GET /items/7 host=orders.lbd ") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		ran++
	}
	if ran == 0 {
		t.Error("the page has no commands")
	}
}

// TestPageHasAll: the page has each code of errors and each metric, and names no flag that does not exist.
func TestPageHasAll(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for code := range kinds {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("no code %s", code)
		}
	}
	var help, values bytes.Buffer
	var m metrics
	m.write(&values, nil)
	for _, name := range regexp.MustCompile(`# TYPE lbd_proxy_(\w+)`).FindAllStringSubmatch(values.String(), -1) {
		if !strings.Contains(text, "`"+name[1]+"`") {
			t.Errorf("no metric %s", name[1])
		}
	}
	_ = run(t.Context(), []string{"--help"}, &help, io.Discard) // it is flag.ErrHelp
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(help.String(), "  "+flag[1]+" ") && flag[1] != "--help" {
			t.Errorf("no flag %s", flag[1])
		}
	}
}
