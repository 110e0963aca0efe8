package deploy_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// builder is a buildah with its own storage.
type builder struct {
	storage string
}

func (b builder) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("buildah", append([]string{
		"--root", filepath.Join(b.storage, "root"), "--runroot", filepath.Join(b.storage, "run"), "--storage-driver", "vfs",
	}, args...)...)
	cmd.Env = append(os.Environ(), "BUILDAH_FORMAT=docker", "BUILDAH_ISOLATION=chroot", "TMPDIR="+b.storage)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("buildah %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// output returns the output of a program of this machine.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// standIn creates an image for a base image of the Dockerfile: only basic directories, and links to
// mounted directories.
func (b builder) standIn(t *testing.T, name string, env ...string) {
	t.Helper()
	c := b.run(t, "from", "scratch")
	dir := b.run(t, "mount", c)
	for _, d := range []string{"etc/ssl/certs", "usr/bin", "usr/lib", "usr/local/bin", "root", "tmp", "opt/bin", "var/tmp"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if to, err := os.Readlink("/" + link); err == nil {
			must(t, os.Symlink(to, filepath.Join(dir, link)))
		}
	}
	must(t, os.Symlink("../npm/bin/npm-cli.js", filepath.Join(dir, "opt/bin/npm")))
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "etc/ssl/certs/ca-certificates.crt"), certificates, 0o644)
	}
	must(t, err)
	for _, e := range env {
		b.run(t, "config", "--env", e, c)
	}
	b.run(t, "commit", "--quiet", "--rm", c, name)
}

// build builds the Dockerfile with stand-ins for its base images. They mount Go, Node and their
// caches from this machine during the build; the image has only what is copied into it.
func (b builder) build(t *testing.T, version string) (image string) {
	t.Helper()
	npm, err := filepath.EvalSymlinks(output(t, "sh", "-c", "command -v npm"))
	must(t, err)
	node, err := filepath.EvalSymlinks(output(t, "sh", "-c", "command -v node"))
	must(t, err)
	const standard = "docker.io/library/"
	for _, line := range regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		name := line[1]
		if !strings.Contains(name, "/") {
			name = standard + name
		}
		b.standIn(t, name, "PATH=/usr/local/go/bin:/opt/bin:/usr/local/bin:/usr/bin",
			"GOTOOLCHAIN=local", "GOMODCACHE=/opt/gomod", "GOCACHE=/opt/gocache", "GOPROXY="+output(t, "go", "env", "GOPROXY"),
			"npm_config_cache=/opt/npmcache", "npm_config_prefer_offline=true", "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt")
	}
	args := []string{"build", "--pull-never", "--quiet", "--build-arg", "VERSION=" + version, "--tag", "lbd:test"}
	for from, to := range map[string]string{
		"/usr/bin": "/usr/bin:ro", "/usr/lib": "/usr/lib:ro", "/usr/share": "/usr/share:ro",
		output(t, "go", "env", "GOROOT"):     "/usr/local/go:ro",
		output(t, "go", "env", "GOMODCACHE"): "/opt/gomod", output(t, "go", "env", "GOCACHE"): "/opt/gocache",
		node: "/opt/bin/node:ro", filepath.Dir(filepath.Dir(npm)): "/opt/npm:ro",
		output(t, "npm", "config", "get", "cache"): "/opt/npmcache",
	} {
		args = append(args, "--volume", from+":"+to)
	}
	if info, err := os.Lstat("/usr/lib64"); err == nil && info.IsDir() {
		args = append(args, "--volume", "/usr/lib64:/usr/lib64:ro")
	}
	b.run(t, append(args, root)...)
	return "lbd:test"
}

// imageConfig is the configuration of an image, in Docker's format.
type imageConfig struct {
	User         string
	Env          []string
	Entrypoint   []string
	ExposedPorts map[string]any
	Volumes      map[string]any
	Healthcheck  struct{ Test []string }
	Labels       map[string]string
}

// TestImageRuns builds the image and runs its command as its user, with only the files of the image.
func TestImageRuns(t *testing.T) {
	if os.Getenv("LBD_TEST_IMAGE") == "" {
		t.Skip("make test-image builds the image")
	}
	const version = "v1.2.3-image"
	b := builder{storage: t.TempDir()}
	image := b.build(t, version)
	var inspected struct {
		Docker struct {
			Config imageConfig `json:"config"`
		}
	}
	must(t, json.Unmarshal([]byte(b.run(t, "inspect", "--type", "image", image)), &inspected))
	c := inspected.Docker.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/lbd"}) || c.ExposedPorts["8080/tcp"] == nil || c.Volumes["/data"] == nil ||
		!slices.Contains(c.Env, "LBD_LISTEN=0.0.0.0:8080") || !slices.Contains(c.Env, "LBD_DATA=/data") ||
		c.Labels["org.opencontainers.image.version"] != version || len(c.Healthcheck.Test) < 3 || c.Healthcheck.Test[0] != "CMD" {
		t.Fatalf("the image's configuration is %+v", c)
	}
	files := b.run(t, "mount", b.run(t, "from", "--pull-never", image))
	info, err := os.Stat(filepath.Join(files, "data"))
	must(t, err)
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm() != 0o750 || owner.Uid != imageUser || owner.Gid != imageUser {
		t.Errorf("/data has mode %v and owner %d", info.Mode(), owner.Uid)
	}
	for name, part := range map[string]string{"LICENSE": "Apache License", "THIRD-PARTY-LICENSES.txt": "swagger-ui-bundle.js.LICENSE.txt\n"} {
		text, err := os.ReadFile(filepath.Join(files, "licenses", name))
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s has no %q: %v", name, part, err)
		}
	}

	inside := func(listen string, args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "/"
		cmd.Env = append(slices.Clone(c.Env), "LBD_LISTEN="+listen, "LBD_DENY_ENDPOINTS=none") // a port that is free; lbd is its own endpoint
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: files, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser}}
		return cmd
	}
	if out, err := inside("", append(c.Entrypoint, "version")...).CombinedOutput(); err != nil || string(out) != "lbd "+version+"\n" {
		t.Errorf("version: %v: %s", err, out)
	}
	daemon := inside("127.0.0.1:0", c.Entrypoint...)
	stderr, err := daemon.StderrPipe()
	if err == nil {
		err = daemon.Start()
	}
	must(t, err)
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	address := serving(t, stderr)

	if out, err := inside(address, c.Healthcheck.Test[1:]...).CombinedOutput(); err != nil {
		t.Errorf("health check: %v: %s", err, out)
	}
	if out, err := inside("127.0.0.1:1", c.Healthcheck.Test[1:]...).CombinedOutput(); err == nil {
		t.Errorf("health check without a daemon: %s", out)
	}
	get := func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		must(t, err)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s, %v\n%s", method, path, response.Status, err, answer)
		}
		return string(answer)
	}
	get("GET", "/livez", "")
	get("PUT", "/v1/snapshot", strings.Replace(self, "8080", address[strings.LastIndex(address, ":")+1:], 1))
	if picked := get("GET", "/pick?cluster=orders&wait=30s", ""); !strings.Contains(picked, "127.0.0.1") {
		t.Errorf("picked %s", picked)
	}
	script := regexp.MustCompile(`assets/main-\w+\.js`).FindString(get("GET", "/", ""))
	if script == "" || !strings.Contains(get("GET", "/"+script, ""), "v1/clusters") {
		t.Errorf("the dashboard's script %q asks for no clusters", script)
	}
	must(t, daemon.Process.Signal(syscall.SIGTERM))
	if err := daemon.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Stat(filepath.Join(files, "data/lbd.db")); err != nil {
		t.Errorf("the pushed resources are not stored: %v", err)
	}
}

// serving waits for the address of lbd in its log, and drains the log.
func serving(t *testing.T, stderr io.Reader) (address string) {
	t.Helper()
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`msg=serving addresses=\[(\S+)\]`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return m[1]
		}
	}
	t.Fatalf("lbd does not serve\n%s", log.String())
	return ""
}
