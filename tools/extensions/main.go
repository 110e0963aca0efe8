// Command extensions writes the descriptors of Envoy's extensions that xds/decode embeds: a
// FileDescriptorSet, compressed by gzip, of all messages of API version 3 that a resource can carry
// in an Any and that xds/decode does not link in, each file after those that it imports. They are of
// the version of go-control-plane in go.mod.
//
// The descriptors are constants in the generated Go code. It is parsed, not compiled: that would take
// minutes.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// decoder embeds the set.
const decoder = "github.com/lbd-dev/lbd/xds/decode"

func main() {
	dir := flag.String("dir", ".", "the repository's root")
	out := flag.String("o", "extensions.binpb.gz", "the file to write")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "extensions:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	set, err := extensions(dir)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(set); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, zipped.Bytes(), 0o644) //nolint:gosec // the descriptors are public
}

// extensions returns the set, not compressed. The same sources give the same bytes.
func extensions(dir string) ([]byte, error) {
	roots, err := extensionPackages(dir)
	if err != nil {
		return nil, err
	}
	packages, err := list(dir, append([]string{"-deps"}, roots...)...)
	if err != nil {
		return nil, err
	}
	linked, err := list(dir, "-deps", decoder)
	if err != nil {
		return nil, err
	}
	isLinked := map[string]bool{}
	for _, p := range linked {
		isLinked[p.ImportPath] = true
	}
	var files []*descriptorpb.FileDescriptorProto
	for _, p := range packages {
		if isLinked[p.ImportPath] {
			continue
		}
		for _, name := range p.GoFiles {
			if !strings.HasSuffix(name, ".pb.go") {
				continue
			}
			f, err := descriptor(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&descriptorpb.FileDescriptorSet{File: ordered(files)})
}

// extensionPackages returns the packages with messages that an Any can carry. Those of OpenTelemetry
// are left out: lbd does not need the module that they import.
func extensionPackages(dir string) ([]string, error) {
	const envoy = "github.com/envoyproxy/go-control-plane/envoy/"
	all, err := list(dir, "-find", envoy+"config/...", envoy+"extensions/...")
	var paths []string
	for _, p := range all {
		if path.Base(p.ImportPath) == "v3" && !strings.HasSuffix(p.ImportPath, "/open_telemetry/v3") {
			paths = append(paths, p.ImportPath)
		}
	}
	return paths, err
}

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
}

// list runs go list.
func list(dir string, args ...string) ([]goPackage, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles"}, args...)...) //nolint:gosec,noctx // a tool
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", args[0], err)
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", args[0], err)
		}
		packages = append(packages, p)
	}
}

// descriptor returns the descriptor in a file of generated code.
func descriptor(file string) (*descriptorpb.FileDescriptorProto, error) {
	code, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	raw, found := "", false
	ast.Inspect(code, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && strings.HasSuffix(s.Names[0].Name, "_rawDesc") && len(s.Values) == 1 {
			raw, found = stringOf(s.Values[0])
		}
		return !found
	})
	f := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal([]byte(raw), f); err != nil || f.GetName() == "" {
		return nil, fmt.Errorf("%s: no descriptor found (%v)", file, err) //nolint:errorlint // it may be nil
	}
	return f, nil
}

// stringOf returns the value of a constant expression of strings.
func stringOf(e ast.Expr) (value string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		x, okX := stringOf(e.X)
		y, okY := stringOf(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	default:
		return "", false
	}
}

// ordered returns the files with each after those that it imports.
func ordered(files []*descriptorpb.FileDescriptorProto) []*descriptorpb.FileDescriptorProto {
	left := map[string]*descriptorpb.FileDescriptorProto{}
	for _, f := range files {
		left[f.GetName()] = f
	}
	var list []*descriptorpb.FileDescriptorProto
	var add func(name string)
	add = func(name string) {
		f := left[name]
		if f == nil {
			return // it is linked in, or in the list already
		}
		delete(left, name)
		for _, imported := range f.GetDependency() {
			add(imported)
		}
		list = append(list, f)
	}
	for _, f := range files {
		add(f.GetName())
	}
	return list
}
