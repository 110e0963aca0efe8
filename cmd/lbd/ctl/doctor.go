package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Version is the version of this program. kong binds it.
type Version string

// Doctor is lbd doctor.
type Doctor struct {
	Options

	Cluster string `arg:"" optional:"" help:"Cluster to examine in detail; without it, the daemon and the clusters that have a problem."`
	NoDial  bool   `help:"Do not let the daemon connect to the endpoints of CLUSTER."`
}

// Help returns the part of the help that is below the description. kong calls it.
func (*Doctor) Help() string {
	return "The first line names the cause. Exit codes: 0 no problem; 1 problems found; the others are those of lbd ctl."
}

// finding is the result of one check.
type finding struct {
	Check   string   `json:"check"`
	Status  string   `json:"status"`
	Cluster string   `json:"cluster,omitempty"`
	Found   string   `json:"found"`
	Remedy  string   `json:"remedy,omitempty"`
	Details []string `json:"details,omitempty"`
	Since   string   `json:"since,omitempty"`
}

// The results of checks.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkProblem = "problem"
	checkSkipped = "skipped"
)

// marks are the symbols of the results, with their colors as SGR parameters.
var marks = map[string]struct{ symbol, color string }{
	checkOK: {"✓", "32"}, checkWarning: {"!", "33"}, checkProblem: {"✗", "31"}, checkSkipped: {"-", "90"},
}

// Run examines a daemon, and prints what it finds.
func (c *Doctor) Run(ctx context.Context, app *kong.Kong, version Version) error {
	return c.with(app, func(s *session) error {
		query := url.Values{}
		if c.Cluster != "" {
			query.Set("cluster", c.Cluster)
			query.Set("dial", fmt.Sprint(!c.NoDial))
		}
		asked := time.Now()
		answer, err := s.client.do(ctx, request{method: http.MethodGet, path: "/v1/doctor", query: query})
		if err != nil {
			return s.undiagnosed(ctx, err, version)
		}
		var report struct {
			Version string    `json:"version"`
			Checks  []finding `json:"checks"`
		}
		var all map[string]json.RawMessage
		if err := errors.Join(decode(answer.body, &report), decode(answer.body, &all)); err != nil {
			return err
		}
		own := []finding{
			{Check: "connection", Status: checkOK, Found: fmt.Sprintf("%s is an lbd, and responded in %v", s.client.name(), time.Since(asked).Round(time.Millisecond))},
			compareVersions(string(version), report.Version), compareClocks(answer.header.Get("Date"), asked, time.Now()),
		}
		return s.printFindings(append(own, report.Checks...), all)
	})
}

// compareVersions compares the versions of this program and of the daemon.
func compareVersions(own, daemon string) finding {
	if own == daemon {
		return finding{Check: "version", Status: checkOK, Found: "this program and the daemon have the version " + own}
	}
	return finding{
		Check: "version", Status: checkWarning, Found: fmt.Sprintf("this program has the version %s, and the daemon %s", own, daemon),
		Remedy: "use the same version, or restart the daemon if it was upgraded",
	}
}

// maxClockDifference is the difference of clocks that is reported. A Date header has a resolution of 1 s.
const maxClockDifference = 5 * time.Second

// compareClocks compares the clocks of this host and of the daemon's.
func compareClocks(date string, asked, answered time.Time) finding {
	at, err := http.ParseTime(date)
	if err != nil {
		return finding{Check: "clocks", Status: checkSkipped, Found: "the response has no date to compare the clocks with"}
	}
	ahead := time.Duration(0)
	switch {
	case at.Before(asked.Add(-time.Second)):
		ahead = at.Sub(asked)
	case at.After(answered):
		ahead = at.Sub(answered)
	}
	if ahead.Abs() > maxClockDifference {
		return finding{
			Check: "clocks", Status: checkWarning, Found: fmt.Sprintf("the clocks of this host and of the daemon differ by %v", ahead.Abs().Round(time.Second)),
			Remedy: "synchronize the clocks (NTP): validity of certificates and tokens depends on them",
		}
	}
	return finding{Check: "clocks", Status: checkOK, Found: "the clocks of this host and of the daemon agree"}
}

// undiagnosed prints why there is no report, and returns an error with the exit code of err.
func (s *session) undiagnosed(ctx context.Context, err error, version Version) error {
	if errors.Is(err, errInterrupted) {
		return err
	}
	f := finding{Check: "connection", Status: checkProblem}
	f.Found, f.Remedy, _ = strings.Cut(err.Error(), "; ")
	f.Remedy = cmp.Or(f.Remedy, "correct --url, LBD_CTL_URL or the context, or look for a proxy in between")
	if refused, ok := errors.AsType[*refusal](err); ok {
		f = finding{Check: "access", Status: checkProblem, Found: cmp.Or(refused.Detail, refused.Title), Remedy: refused.remedy()}
		switch {
		case refused.Code == "not_found":
			f = s.older(ctx, version)
		case refused.Status >= http.StatusInternalServerError || refused.Code == "overloaded":
			f.Check = "daemon"
		}
	}
	if err := s.printFindings([]finding{f}, nil); !errors.Is(err, errNegative) {
		return err
	}
	var coder kong.ExitCoder
	if !errors.As(err, &coder) {
		return err
	}
	return &failure{code: coder.ExitCode()}
}

// older describes a daemon that does not have the request.
func (s *session) older(ctx context.Context, version Version) finding {
	f := finding{
		Check: "version", Status: checkProblem, Found: "the daemon is too old: it has no GET /v1/doctor, or the URL has a wrong path",
		Remedy: "upgrade the daemon; lbd ctl get shows the state of clusters",
	}
	var daemon struct {
		Version string `json:"version"`
	}
	if _, err := s.client.get(ctx, "/v1/daemon", url.Values{}, &daemon); err == nil {
		f.Found = fmt.Sprintf("the daemon is too old: it has the version %s and no GET /v1/doctor; this program has the version %s", daemon.Version, version)
	}
	return f
}

// printFindings prints findings, the problems first. report has the other fields of the report. It
// returns errNegative if there is a problem.
func (s *session) printFindings(all []finding, report map[string]json.RawMessage) error {
	order := []string{checkProblem, checkWarning, checkSkipped, checkOK}
	slices.SortStableFunc(all, func(a, b finding) int { return slices.Index(order, a.Status) - slices.Index(order, b.Status) })
	counts := make(map[string]int)
	var names []string
	for _, f := range all {
		if counts[f.Status]++; f.Status == checkProblem || f.Status == checkWarning {
			names = append(names, f.Check)
		}
	}
	if s.output == "table" {
		s.printLines(all, counts)
	} else {
		raw, err := mergeReport(all, counts, report)
		if err != nil {
			return err
		}
		if err := s.print(raw, names); err != nil {
			return err
		}
	}
	if counts[checkProblem] > 0 {
		return errNegative
	}
	return nil
}

// mergeReport returns the report of the daemon with all findings.
func mergeReport(all []finding, counts map[string]int, report map[string]json.RawMessage) ([]byte, error) {
	merged := make(map[string]any)
	for name, v := range report {
		merged[name] = v
	}
	merged["status"], merged["summary"] = checkOK, "no problem found"
	if first := all[0]; first.Status == checkProblem || first.Status == checkWarning {
		merged["status"], merged["summary"] = first.Status, first.Found
	}
	merged["problems"], merged["warnings"], merged["checks"] = counts[checkProblem], counts[checkWarning], all
	return json.Marshal(merged)
}

// printLines prints findings for people.
func (s *session) printLines(all []finding, counts map[string]int) {
	color := s.color()
	if counts[checkProblem]+counts[checkWarning] == 0 {
		fmt.Fprintf(s.stdout, "%s no problem found\n", paint(checkOK, color))
	}
	for _, f := range all {
		name := f.Check
		if f.Cluster != "" {
			name += " of " + f.Cluster
		}
		since := ""
		if f.Since != "" {
			since = ", since " + f.Since
		}
		fmt.Fprintf(s.stdout, "%s %s: %s%s\n", paint(f.Status, color), escape(name), escape(f.Found), escape(since))
		for _, d := range f.Details {
			if f.Status != checkOK && (len(f.Details) > 1 || !strings.Contains(f.Found, d)) {
				fmt.Fprintf(s.stdout, "    %s\n", escape(d))
			}
		}
		if f.Remedy != "" {
			fmt.Fprintf(s.stdout, "    What to do: %s.\n", escape(strings.TrimSuffix(f.Remedy, ".")))
		}
	}
	fmt.Fprintf(s.stdout, "problems: %d   warnings: %d   ok: %d   skipped: %d\n", counts[checkProblem], counts[checkWarning], counts[checkOK], counts[checkSkipped])
}

// paint returns the symbol of a result.
func paint(status string, color bool) string {
	m, ok := marks[status]
	if !ok {
		return "?"
	}
	if color {
		return "\x1b[" + m.color + "m" + m.symbol + "\x1b[0m"
	}
	return m.symbol
}
