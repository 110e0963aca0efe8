package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type scrapeConfigs struct {
	ScrapeConfigs []struct {
		JobName   string `json:"job_name"`
		Discovery []struct {
			Role      string `json:"role"`
			Selectors []struct {
				Role  string `json:"role"`
				Label string `json:"label"`
			} `json:"selectors"`
		} `json:"kubernetes_sd_configs"`
		Relabel []struct {
			Action string   `json:"action"`
			Source []string `json:"source_labels"`
			Regex  string   `json:"regex"`
			Target string   `json:"target_label"`
		} `json:"relabel_configs"`
		Static any `json:"static_configs"`
	} `json:"scrape_configs"`
}

func scraping(t *testing.T, file string) (s scrapeConfigs) {
	t.Helper()
	_, jobs, _ := strings.Cut(read(t, file), "\nscrape_configs:\n")
	if err := yaml.UnmarshalStrict([]byte("scrape_configs:\n"+jobs), &s); err != nil || len(s.ScrapeConfigs) != 1 {
		t.Fatalf("%s: %v, %d jobs", file, err, len(s.ScrapeConfigs))
	}
	return s
}

// scraped: the job of the rules selects the pods of lbd by their labels, and no other job
// does.
func scraped(t *testing.T, m manifest) {
	job := scraping(t, "deploy/prometheus/kubernetes.scrape.yml").ScrapeConfigs[0]
	if want := scraping(t, "deploy/prometheus/prometheus.yml").ScrapeConfigs[0].JobName; job.JobName != want {
		t.Errorf("the job is %q, and the rules ask for %q", job.JobName, want)
	}
	if len(job.Discovery) != 1 || job.Discovery[0].Role != "pod" || len(job.Discovery[0].Selectors) != 1 {
		t.Fatalf("discovery is %+v", job.Discovery)
	}
	for a := range m.pod.Annotations {
		if strings.HasPrefix(a, "prometheus.io/") {
			t.Errorf("%s leads to a job of another name, which no rule reads", a)
		}
	}
	c := m.lbd
	name, value, _ := strings.Cut(job.Discovery[0].Selectors[0].Label, "=")
	found := m.pod.Labels[name] == value
	if len(c.Ports) == 0 { // it cannot be scraped
		if found {
			t.Error("a pod without a port is scraped")
		}
		return
	}
	if !found {
		t.Errorf("no pod has the label %s=%s", name, value)
	}
	for _, phase := range []string{"Running", "Pending", "Succeeded", "Failed"} {
		meta := map[string]string{
			"__meta_kubernetes_pod_phase":               phase,
			"__meta_kubernetes_pod_container_name":      c.Name,
			"__meta_kubernetes_pod_container_port_name": c.Ports[0].Name,
		}
		kept := true
		for _, r := range job.Relabel {
			var values []string
			for _, s := range r.Source {
				values = append(values, meta[s])
			}
			matches := regexp.MustCompile(`^(?:` + r.Regex + `)$`).MatchString(strings.Join(values, ";"))
			kept = kept && (r.Action != "keep" || matches) && (r.Action != "drop" || !matches)
		}
		if want := phase == "Running" || phase == "Pending"; kept != want {
			t.Errorf("a pod that is %s is scraped: %v", phase, kept)
		}
	}
}
