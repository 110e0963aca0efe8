package observability_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
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

// prometheus is a Prometheus that runs.
type prometheus struct {
	url   string
	begun time.Time
}

// startPrometheus runs Prometheus with the configuration and the rules of the
// repository, but for where and how often it scrapes, and how long alerts wait.
// It scrapes daemons, and dead, where nobody answers.
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
	const here = "127.0.0.1:8080"
	var addresses []string
	for _, d := range daemons {
		addresses = append(addresses, "'"+d.address+"'")
	}
	all := strings.Join(addresses, ", ")
	config := read(t, filepath.Join(rulesDir, "prometheus.yml"))
	config = swap(config, "interval: 15s", "interval: 1s")
	config = swap(config, here, all+", '"+dead+"'")
	_, jobs, _ := strings.Cut(read(t, filepath.Join(rulesDir, "endpoints.scrape.yml")), "scrape_configs:\n")
	config += swap(swap(jobs, "interval: 1m", "interval: 1s"), here, all)
	writeFile(t, filepath.Join(dir, "prometheus.yml"), config)
	writeFile(t, filepath.Join(dir, "recording.rules.yml"), read(t, filepath.Join(rulesDir, "recording.rules.yml")))
	waits := regexp.MustCompile(`\bfor: [1-9]\d*m`)
	writeFile(t, filepath.Join(dir, "alerts.rules.yml"), waits.ReplaceAllString(read(t, filepath.Join(rulesDir, "alerts.rules.yml")), "for: 2s"))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t, "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Dir = dir
	cmd.Env = []string{"GOMAXPROCS=1", "TZ=UTC"}
	run(t, cmd)
	p := prometheus{url: "http://" + address, begun: time.Now()}
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

// api asks Prometheus' HTTP API and returns the data of the answer.
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

// line is a series of an answer, with its values: one where it was asked for an
// instant.
type line struct {
	Metric map[string]string
	Value  point
	Values []point
}

// point is a time in Unix seconds and a value.
type point [2]any

func (p point) at() float64 {
	seconds, _ := p[0].(float64)
	return seconds
}

func (p point) value() float64 {
	text, _ := p[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
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

// want is a series that has to be in an answer, with its last value between two.
type want struct {
	labels   map[string]string
	min, max float64
	// of is the instance, of a series that has that label.
	of string
	// once: it is enough that some value is, now or before.
	once bool
}

// is wants labels, given as name, value …, and a value.
func is(v float64, labels ...string) want { return within(v, v, labels...) }

func within(low, high float64, labels ...string) want {
	w := want{labels: map[string]string{}, min: low, max: high}
	for i := 0; i < len(labels); i += 2 {
		w.labels[labels[i]] = labels[i+1]
	}
	return w
}

func (w want) ever() want { w.once = true; return w }

// in tells why the answer has no such series.
func (w want) in(answer []line) error {
	var seen []string
	for _, l := range answer {
		if !w.bears(l.Metric) {
			continue
		}
		values := l.Values
		if !w.once {
			last := values[len(values)-1]
			if age := float64(time.Now().UnixMilli())/1000 - last.at(); age > 10 {
				seen = append(seen, fmt.Sprintf("ended %.0f s ago", age))
				continue
			}
			values = []point{last}
		}
		for _, v := range values {
			if v.value() >= w.min && v.value() <= w.max {
				return nil
			}
			seen = append(seen, fmt.Sprint(v.value()))
		}
	}
	return fmt.Errorf("no %v is between %v and %v: %d series, those values are %v", w.labels, w.min, w.max, len(answer), seen)
}

func (w want) bears(labels map[string]string) bool {
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

// subjects are the labels that say what an alert is of, where it is not the
// instance.
var subjects = []string{"cluster", "target", "server", "type", "result"}

// firing are the alerts that fire, each with its cluster or what else it is of.
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
			if !strings.Contains(text, a.Labels["instance"]) || !strings.Contains(text, a.Labels["cluster"]) ||
				!strings.Contains(text, a.Labels["target"]) || !strings.Contains(text, a.Labels["server"]) || !strings.Contains(text, a.Labels["type"]) || strings.Contains(text, "no value") || strings.Contains(text, "{{") || strings.Contains(text, "error expanding") {
				t.Errorf("%s says: %s", a.Labels["alertname"], text)
			}
		}
	}
	return firing, nil
}

// names are the keys in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
