package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// write writes an archive of two platforms, and returns it and its layout.
func write(t *testing.T) ([]byte, v1.ImageIndex) {
	t.Helper()
	dir := t.TempDir()
	var args []string
	for _, arch := range []string{"amd64", "arm64"} {
		binary := filepath.Join(dir, arch)
		err := os.WriteFile(binary, []byte("lbd of "+arch), 0o600)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "lbd-proxy"), []byte("proxy"), 0o600)); err != nil {
			t.Fatal(err)
		}
		args = append(args, arch+"="+binary)
	}
	file := filepath.Join(dir, "image.tar")
	if err := run("v1.2.3+dirty", []string{"../../LICENSE"}, file, args); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "layout")
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(out, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o750)
		} else if body, readErr := io.ReadAll(r); readErr != nil {
			err = readErr
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, body, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	return archive, index
}

// TestImage: the layout is valid, has both platforms under a tag, and is the same for the same input.
func TestImage(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	first, index := write(t)
	if second, _ := write(t); !bytes.Equal(first, second) {
		t.Error("two archives of the same input differ")
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "lbd:v1.2.3-dirty" {
		t.Fatalf("%v: %+v", err, top)
	}
	platforms, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := platforms.IndexManifest()
	if err != nil || len(list.Manifests) != 2 {
		t.Fatalf("%v: %+v", err, list)
	}
	for _, one := range list.Manifests {
		image, err := platforms.Image(one.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.OS != "linux" || config.Architecture != one.Platform.Architecture || config.Created.Unix() != 1700000000 {
			t.Errorf("%v: %+v", err, config)
		}
		check(t, image, "lbd of "+one.Platform.Architecture)
		agrees(t, config.Config)
	}
}

// agrees checks that a config is that of the Dockerfile. Only the directory with certificates and PATH,
// which the Dockerfile has from its base image, are additional.
func agrees(t *testing.T, config v1.Config) {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(text), "\nFROM gcr.io/")
	lines := []string{
		"ENV " + strings.Join(config.Env[2:], " "), "USER " + config.User, "EXPOSE 8080", "VOLUME /data", "HEALTHCHECK CMD [\"/lbd\", \"healthcheck\"]",
		"ENTRYPOINT [\"" + strings.Join(config.Entrypoint, "") + "\"]",
	}
	for name, value := range config.Labels {
		if name != "org.opencontainers.image.version" && !strings.Contains(last, name+"="+value) && !strings.Contains(last, name+"=\""+value+"\"") {
			t.Errorf("the Dockerfile does not have the label %s=%s", name, value)
		}
	}
	for _, line := range lines {
		if !strings.Contains(last, "\n"+line+"\n") {
			t.Errorf("the Dockerfile does not have %s", line)
		}
	}
	_, port := config.ExposedPorts["8080/tcp"]
	_, volume := config.Volumes["/data"]
	if !port || !volume || !slices.Equal(config.Healthcheck.Test, []string{"CMD", "/lbd", "healthcheck"}) {
		t.Errorf("config %+v", config)
	}
}

// check checks the files of an image.
func check(t *testing.T, image v1.Image, binary string) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	var files []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fmt.Sprintf("%s %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid))
		switch h.Name {
		case "lbd":
			if string(body) != binary {
				t.Errorf("the binary is %q", body)
			}
		case certificates[1:]:
			if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(body) || bytes.Count(body, []byte("BEGIN CERTIFICATE")) < 80 {
				t.Errorf("authorities: %d bytes", len(body))
			}
		}
	}
	want := []string{
		"etc/ 755 0:0", "etc/passwd 644 0:0", "etc/group 644 0:0", "etc/ssl/ 755 0:0", "etc/ssl/certs/ 755 0:0",
		"etc/ssl/certs/ca-certificates.crt 644 0:0", "tmp/ 1777 0:0", "data/ 750 65532:65532", "lbd 755 0:0", "lbd-proxy 755 0:0",
		"licenses/ 755 0:0", "licenses/LICENSE 644 0:0",
	}
	if !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"amd64"}, {"amd64=/none/such"}} {
		if err := run("", nil, filepath.Join(t.TempDir(), "image.tar"), args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if err := run("", []string{"/none/such"}, filepath.Join(t.TempDir(), "image.tar"), []string{"amd64=main.go"}); err == nil {
		t.Error("no license: no error")
	}
}
