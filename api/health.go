package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
)

// @Summary Check that the process is alive
// @Produce plain
// @Param   verbose query bool false "list each check"
// @Success 200 {string} string "the check passed"
// @Router  /livez [get]
func (h *handlers) livez(w *recorder, r *http.Request) error {
	return writeChecks(w, r, "livez", []service.Check{{Name: "ping", OK: true}})
}

// @Summary Check that lbd is ready for picks
// @Produce plain
// @Param   verbose query bool false "list each check"
// @Success 200 {string} string "the check passed"
// @Failure 503 {string} string "the check failed, with the reason"
// @Router  /readyz [get]
func (h *handlers) readyz(w *recorder, r *http.Request) error {
	return writeChecks(w, r, "readyz", h.Readiness(scopeOf(w)))
}

// writeChecks answers a probe in the format of Kubernetes components: "ok", or status 503 and the
// list of checks; verbose always lists the checks, one per line: [+] passed, [!] warning, which
// does not fail the probe, [-] failed.
func writeChecks(w *recorder, r *http.Request, name string, checks []service.Check) error {
	var verbose bool
	err := readParameters(r, parameter{name: "verbose", set: func(v value) string { return v.boolean(&verbose) }})
	if err != nil {
		return err
	}
	status, verdict := http.StatusOK, "passed"
	var b bytes.Buffer
	for _, c := range checks {
		mark := '+'
		switch {
		case c.Warning:
			mark = '!'
		case !c.OK:
			mark = '-'
			status, verdict = http.StatusServiceUnavailable, "failed"
		}
		fmt.Fprintf(&b, "[%c]%s", mark, c.Name)
		if c.Detail != "" && hasRole(w, access.Read) {
			b.WriteString(": " + strings.ReplaceAll(c.Detail, "\n", " "))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s check %s\n", name, verdict)
	if status == http.StatusOK && !verbose {
		b.Reset()
		b.WriteString("ok\n")
	}
	w.Header()["Content-Type"] = textType
	w.Header()["Cache-Control"] = noStore
	writeBody(w, status, b.Bytes())
	return nil
}
