package deploy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// imageUser is the user of the image.
const imageUser = 65532

func seconds(t *testing.T, s string) int64 {
	t.Helper()
	d, err := time.ParseDuration(s)
	must(t, err)
	return int64(d / time.Second)
}

// instructions returns the arguments of an instruction in the last stage of the Dockerfile.
func instructions(t *testing.T, name string) (found []string) {
	t.Helper()
	stages := strings.Split("\n"+read(t, "Dockerfile"), "\nFROM ")
	for line := range strings.Lines(stages[len(stages)-1]) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	return found
}

// TestImage: commands are in JSON form, because the image has no shell; the user is a number, as
// runAsNonRoot requires; the variables are those of lbd.
func TestImage(t *testing.T) {
	var entrypoint []string
	if e := instructions(t, "ENTRYPOINT"); len(e) != 1 || json.Unmarshal([]byte(e[0]), &entrypoint) != nil || !slices.Equal(entrypoint, []string{"/lbd"}) {
		t.Errorf("ENTRYPOINT is %q", e)
	}
	var check []string
	h := instructions(t, "HEALTHCHECK")
	if len(h) != 1 {
		t.Fatalf("HEALTHCHECK is %q", h)
	}
	if _, list, ok := strings.Cut(h[0], "CMD "); !ok || json.Unmarshal([]byte(list), &check) != nil || len(check) < 2 || check[0] != "/lbd" {
		t.Errorf("HEALTHCHECK is %q", h)
	} else {
		accepts(t, check[1:], nil)
	}
	if u := instructions(t, "USER"); !slices.Equal(u, []string{fmt.Sprintf("%d:%d", imageUser, imageUser)}) {
		t.Errorf("USER is %q", u)
	}
	var env []string
	for _, line := range instructions(t, "ENV") {
		env = append(env, strings.Fields(line)...)
	}
	if !slices.Contains(env, "LBD_LISTEN=0.0.0.0:8080") || !slices.Contains(env, "LBD_DATA=/data") {
		t.Errorf("ENV is %q", env)
	}
	accepts(t, nil, env)
	if v := instructions(t, "VOLUME"); !slices.Equal(v, []string{"/data"}) {
		t.Errorf("VOLUME is %q", v)
	}
	if p := instructions(t, "EXPOSE"); !slices.Equal(p, []string{"8080"}) {
		t.Errorf("EXPOSE is %q", p)
	}
	// The compiler runs on the builder's platform and compiles for the image's.
	if text := read(t, "Dockerfile"); strings.Count(text, "FROM --platform=$BUILDPLATFORM ") != 3 || !strings.Contains(text, " GOARCH=$TARGETARCH go build -trimpath") {
		t.Error("the image's lbd is not compiled on the builder's platform for the image's")
	}
	// Without cgo, for there is no libc.
	if !regexp.MustCompile(`CGO_ENABLED=0 .*go build .*-X main\.version=`).MatchString(read(t, "Dockerfile")) {
		t.Error("the image's lbd is not built as make build does")
	}
}
