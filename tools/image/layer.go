package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user runs lbd and owns /data: the user nonroot of distroless images.
	user = 65532
	// certificates is the file with the authorities, where Go looks for it.
	certificates = "/etc/ssl/certs/ca-certificates.crt"
)

// entry is a file or a directory of the image.
type entry struct {
	name  string
	mode  int64
	owner int
	body  []byte // nil for a directory
}

// layer returns the only layer: the binary, lbd-proxy beside it, the data directory, a user, licenses, and the authorities of
// Mozilla.
func layer(binary string, licenses []string, at time.Time) (v1.Layer, error) {
	lbd, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	proxy, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "lbd-proxy"))
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", user, user)},
		{name: "etc/group", mode: 0o644, body: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: certificates[1:], mode: 0o644, body: authorities()},
		{name: "tmp/", mode: 0o1777},
		{name: "data/", mode: 0o750, owner: user},
		{name: "lbd", mode: 0o755, body: lbd},
		{name: "lbd-proxy", mode: 0o755, body: proxy},
		{name: "licenses/", mode: 0o755},
	}
	for _, path := range licenses {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "licenses/" + filepath.Base(path), mode: 0o644, body: text})
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.body)), ModTime: at, Format: tar.FormatPAX,
		}
		if e.body == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content := b.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
}

// authorities returns the authorities of Mozilla for TLS servers, in PEM. Those that Mozilla trusts with
// constraints only, which PEM cannot express, are left out.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

// archive writes the files of a directory as a tar file, sorted by name.
func archive(file, dir string, at time.Time) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	w := tar.NewWriter(out)
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: at})
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: at}); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}
