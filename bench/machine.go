package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/bench/peer"
)

// machine is where and with what a run was made.
type machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Load     string            `json:"load"` // load average at the begin
	Started  string            `json:"started"`
	Versions map[string]string `json:"versions"`
}

func (m machine) String() string {
	parts := []string{fmt.Sprintf("%s, %d cores, Linux %s, %s, load %s at %s", m.CPU, m.Cores, m.Kernel, m.Go, m.Load, m.Started)}
	for _, name := range []string{"grpc", "fasthttp", "bbolt", "nginx", "haproxy", "envoy"} {
		if v := m.Versions[name]; v != "" {
			parts = append(parts, name+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}

func thisMachine(p peer.Programs) machine {
	m := machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), Started: time.Now().UTC().Format(time.RFC3339),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: firstLine("/proc/loadavg"), Versions: make(map[string]string),
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range bytes.Lines(text) {
			if name, value, _ := strings.Cut(string(l), ":"); strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			for name, path := range map[string]string{
				"grpc": "google.golang.org/grpc", "fasthttp": "github.com/valyala/fasthttp", "bbolt": "go.etcd.io/bbolt",
			} {
				if d.Path == path {
					m.Versions[name] = d.Version
				}
			}
		}
	}
	for name, args := range map[string][]string{"nginx": {p.Nginx, "-v"}, "haproxy": {p.HAProxy, "-v"}, "envoy": {p.Envoy, "--version"}} {
		if args[0] == "" {
			continue
		}
		//nolint:gosec,noctx // the peers are programs that the caller chose, and print their version
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err == nil {
			m.Versions[name] = version(string(out))
		}
	}
	return m
}

// version returns the first word of a text that looks like a version.
func version(text string) string {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == ' ' || r == '\n' || r == '-' }) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return "unknown"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
