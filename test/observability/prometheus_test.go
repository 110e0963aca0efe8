package observability_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// prometheus is a running Prometheus.
type prometheus struct {
	url   string
	begun time.Time
}

// startPrometheus runs Prometheus with the configuration and rules of the repository, and
// short intervals. It scrapes daemons, and dead, an address without a daemon.
func startPrometheus(t *testing.T, dead string, daemons ...daemon) prometheus {
	t.Helper()
	dir := t.TempDir()
	swap := func(text, old, to string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("there is no %q in\n%s", old, text)
		}
		return strings.ReplaceAll(text, old, to)
	}
	copyFile := func(name string, change func(string) string) {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), change(read(t, filepath.Join(rulesDir, name))))
	}
	const here = "127.0.0.1:8080"
	var addresses []string
	for _, d := range daemons {
		addresses = append(addresses, "'"+d.address+"'")
	}
	all := strings.Join(addresses, ", ")
	copyFile("prometheus.yml", func(config string) string {
		_, jobs, _ := strings.Cut(read(t, filepath.Join(rulesDir, "endpoints.scrape.yml")), "scrape_configs:\n")
		return swap(swap(config, "interval: 15s", "interval: 1s"), here, all+", '"+dead+"'") + swap(swap(jobs, "interval: 1m", "interval: 1s"), here, all)
	})
	copyFile("recording.rules.yml", func(text string) string { return text })
	copyFile("alerts.rules.yml", func(text string) string {
		return regexp.MustCompile(`\bfor: [1-9]\d*m`).ReplaceAllString(text, "for: 2s")
	})

	free := listen(t, anywhere)
	free.close()
	cmd := exec.Command(program(t, "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+free.address, "--log.level=warn")
	cmd.Dir = dir
	cmd.Env = []string{"GOMAXPROCS=1", "TZ=UTC"}
	run(t, cmd)
	p := prometheus{url: "http://" + free.address, begun: time.Now()}
	eventually(t, "Prometheus", func() error {
		r, err := client.Get(p.url + "/-/ready")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("answers %s", r.Status)
		}
		return nil
	})
	return p
}

// api calls Prometheus' HTTP API, and reads the data of the answer.
func (p prometheus) api(path string, parameters url.Values, data any) error {
	r, err := client.Get(p.url + "/api/v1/" + path + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer to %s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// line is a series of an answer. An instant query has one value.
type line struct {
	Metric map[string]string
	Value  point
	Values []point
}

// point is a time in Unix seconds and a value.
type point struct{ at, value float64 }

func (p *point) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &[]any{&p.at, &text}); err != nil {
		return err
	}
	var err error
	p.value, err = strconv.ParseFloat(text, 64)
	return err
}

// ask evaluates a query: now, or at each second since Prometheus began.
func (p prometheus) ask(expr string, instant bool) ([]line, error) {
	var answer struct{ Result []line }
	var err error
	if instant {
		err = p.api("query", url.Values{"query": {expr}}, &answer)
		for i := range answer.Result {
			answer.Result[i].Values = []point{answer.Result[i].Value}
		}
	} else {
		seconds := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
		err = p.api("query_range", url.Values{"query": {expr}, "start": {seconds(p.begun)}, "end": {seconds(time.Now())}, "step": {"1"}}, &answer)
	}
	return answer.Result, err
}

// want is an expected series of an answer, with the range of its last value.
type want struct {
	labels   map[string]string
	min, max float64
	of       string // the instance, if the series has that label
	once     bool   // an earlier value is enough
}

// is expects a value, and labels as name, value ….
func is(v float64, labels ...string) want { return within(v, v, labels...) }

func within(low, high float64, labels ...string) want {
	w := want{labels: map[string]string{}, min: low, max: high}
	for i := 0; i < len(labels); i += 2 {
		w.labels[labels[i]] = labels[i+1]
	}
	return w
}

func (w want) ever() want { w.once = true; return w }

// in returns an error if the answer has no such series.
func (w want) in(answer []line) error {
	var seen []string
	for _, l := range answer {
		if !w.matches(l.Metric) {
			continue
		}
		values := l.Values
		if !w.once {
			last := values[len(values)-1]
			if age := float64(time.Now().UnixMilli())/1000 - last.at; age > 10 {
				seen = append(seen, fmt.Sprintf("ended %.0f s ago", age))
				continue
			}
			values = []point{last}
		}
		for _, v := range values {
			if v.value >= w.min && v.value <= w.max {
				return nil
			}
			seen = append(seen, fmt.Sprint(v.value))
		}
	}
	return fmt.Errorf("no %v is between %v and %v: %d series, those values are %v", w.labels, w.min, w.max, len(answer), seen)
}

func (w want) matches(labels map[string]string) bool {
	if instance := labels["instance"]; instance != "" && w.of != "" && instance != w.of {
		return false
	}
	for k, v := range w.labels {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// subjects are the labels that identify an alert besides its instance.
var subjects = []string{"cluster", "target", "server", "type", "result"}

// firing returns the firing alerts with their subjects, and checks their annotations.
func (p prometheus) firing(t *testing.T) (map[string]bool, error) {
	t.Helper()
	var answer struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		}
	}
	if err := p.api("alerts", nil, &answer); err != nil {
		return nil, err
	}
	firing := map[string]bool{}
	for _, a := range answer.Alerts {
		if a.State != "firing" {
			continue
		}
		name := []string{a.Labels["alertname"]}
		for _, label := range subjects {
			if of := a.Labels[label]; of != "" {
				name = append(name, of)
			}
		}
		firing[strings.Join(name, " ")] = true
		for part, text := range a.Annotations {
			if part == "runbook_url" {
				continue
			}
			for _, label := range []string{"instance", "cluster", "target", "server", "type"} {
				if !strings.Contains(text, a.Labels[label]) {
					t.Errorf("%s does not name its %s: %s", a.Labels["alertname"], label, text)
				}
			}
			if regexp.MustCompile(`no value|\{\{|error expanding`).MatchString(text) {
				t.Errorf("%s: %s", a.Labels["alertname"], text)
			}
		}
	}
	return firing, nil
}

// names returns the keys in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
