package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/lbd-dev/lbd/service"
)

// health answers probes, as Kubernetes' components do.
type health struct {
	service *service.Service
}

// live answers that requests are answered.
//
//	@Summary	Is the process alive?
//	@ID			livez
//	@Tags		daemon
//	@Produce	plain
//	@Param		verbose	query		bool	false	"tell each check"
//	@Success	200		{string}	string	"it is"
//	@Failure	400,414	{object}	Problem
//	@Router		/livez [get]
func (h *health) live(w http.ResponseWriter, r *http.Request) error {
	return writeChecks(w, r, "livez", []service.Check{{Name: "ping", OK: true}})
}

// ready answers whether picks should be asked for here.
//
//	@Summary	Is it ready for picks?
//	@ID			readyz
//	@Tags		daemon
//	@Produce	plain
//	@Param		verbose	query		bool	false	"tell each check"
//	@Success	200		{string}	string	"it is"
//	@Failure	503		{string}	string	"it is not; says why"
//	@Failure	400,414	{object}	Problem
//	@Router		/readyz [get]
func (h *health) ready(w http.ResponseWriter, r *http.Request) error {
	return writeChecks(w, r, "readyz", h.service.Health())
}

// writeChecks answers "ok", or 503 and each check; verbose lists the checks in any
// case. [+] marks a check that passed, [!] a condition that does not make the probe
// fail, [-] a check that failed. Each check is one line.
func writeChecks(w http.ResponseWriter, r *http.Request, name string, checks []service.Check) error {
	var verbose bool
	err := readQuery(r.URL.RawQuery, []parameter{{name: "verbose"}}, func(_ string, v value) string {
		return v.boolean(&verbose)
	})
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
		if c.Detail != "" {
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
