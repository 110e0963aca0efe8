package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/bench/stat"
)

// number formats a number with three significant digits.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	rounded := math.Round(v*scale) / scale
	text := strconv.FormatFloat(rounded, 'f', min(digits, 6), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return thousands(text)
}

// exact formats a bound: an integer with all digits.
func exact(v float64) string {
	if v == math.Trunc(v) {
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return number(v)
}

// thousands separates the groups of digits of an integer.
func thousands(text string) string {
	if strings.Contains(text, ".") {
		return text
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// interval formats a summary with its interval.
func interval(s stat.Summary) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Low), number(s.High))
}

// table writes the results as a Markdown table.
func table(w io.Writer, lines []line) error {
	var b strings.Builder
	b.WriteString("| row | work | figure | lbd | peer | result (95 % interval) | must reach | reached |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	last := ""
	for _, l := range lines {
		work := l.Work
		if l.Row == last {
			work = "″"
		}
		last = l.Row
		peer, value := "", interval(l.Value)
		if l.Ratio != nil {
			peer, value = l.Over+" "+number(l.Peer.Median), interval(*l.Ratio)
		}
		bound, reached := "–", ""
		if l.Reached != nil {
			bound = l.Bound
			if reached = "no"; *l.Reached {
				reached = "yes"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", l.Row, work, figureName(l), number(l.Value.Median), peer, value, bound, reached)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figureName names the subject too, if it is not lbd.
func figureName(l line) string {
	if l.Of == subjectLBD {
		return l.Figure
	}
	return l.Of + ": " + l.Figure
}

// report is the JSON of a run.
type report struct {
	Machine machine  `json:"machine"`
	Runs    int      `json:"runs"`
	Rounds  int      `json:"rounds"`
	Brief   bool     `json:"brief,omitempty"`
	Lines   []line   `json:"lines"`
	NotRun  []string `json:"not_run,omitempty"`
	// Values are the figures of each round, by row, subject and figure.
	Values map[string]values `json:"values"`
}

func (r report) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(r)
}

// save writes the report to a file.
func (r report) save(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.write(f)
}
