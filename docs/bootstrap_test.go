package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/bootstrap"
)

const bootstrapPage = "docs/bootstrap.md"

// fenced are the blocks of a page in a language.
func fenced(t *testing.T, file, language string) []string {
	t.Helper()
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(read(t, file), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s shows no %s", file, language)
	}
	return blocks
}

func TestBootstrapsShownAreGood(t *testing.T) {
	for _, body := range fenced(t, bootstrapPage, "json") {
		c, err := bootstrap.Parse([]byte(body), bootstrap.Options{})
		if err != nil {
			t.Errorf("%v\n%s", err, body)
			continue
		}
		for _, w := range c.Warnings {
			if !strings.Contains(w.Reason, "/etc/lbd/tls/") { // files that need not be here
				t.Errorf("%v\n%s", w, body)
			}
		}
	}
}

func TestBootstrapErrorsShownAreThoseOfTheCode(t *testing.T) {
	const server = "{\n  \"xds_servers\": [\n    {\n      \"server_uri\": \"§\",\n      \"channel_creds\": [{\"type\": \"¶\"}]\n    }\n  ],\n"
	shown := strings.Split(strings.TrimSpace(fenced(t, bootstrapPage, "text")[0]), "\n")
	var got []string
	for _, o := range []struct{ source, body string }{
		{"bootstrap file xds.json", strings.NewReplacer("§", "https://control:18000", "¶", "tls").Replace(server) + "\"node\": {}}"},
		{"bootstrap file xds.json", strings.NewReplacer("§", "control:18000", "¶", "google_default").Replace(server) + "\"node\": {}}"},
		{"bootstrap in " + bootstrap.ContentVariable, "{\n\"node\": {\n\n\n\n    \"id\": \"lbd-1\",\n  }}"},
	} {
		_, err := bootstrap.Parse([]byte(o.body), bootstrap.Options{Source: o.source})
		if err == nil {
			t.Fatalf("%s is no error", o.body)
		}
		got = append(got, err.Error())
	}
	if !slices.Equal(got, shown) {
		t.Errorf("the errors are\n%s", strings.Join(got, "\n"))
	}
}

func TestNamesOfListenersAreThoseOfTheCode(t *testing.T) {
	for _, row := range rows(t, bootstrapPage, "Names and authorities") {
		target, template, want := strings.Trim(row[0], "`"), strings.Trim(row[1], "`"), strings.Trim(row[2], "`")
		body := `{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}], "authorities": {"edge": {}}`
		if template != "absent" {
			body += `, "client_default_listener_resource_name_template": "` + template + `"`
		}
		c, err := bootstrap.Parse([]byte(body+"}"), bootstrap.Options{})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if got := c.ListenerName(target); got != want {
			t.Errorf("%s with %s is %s, and not %s", target, template, got, want)
		}
	}
}
