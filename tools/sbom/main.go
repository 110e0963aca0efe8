// Command sbom prints the software bill of materials of a Go binary: the modules and the
// toolchain that it was built from, and the npm packages in its assets, in CycloneDX's JSON.
//
//	sbom [-version VERSION] [-npm PACKAGE-LOCK.JSON] BINARY
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the main module, instead of that in the binary")
	lock := flag.String("npm", "", "package-lock.json of the assets that are embedded in the binary")
	flag.Parse()
	if err := run(flag.Arg(0), *version, *lock, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, version, lock string, out io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	b := bom(info, version)
	if lock != "" {
		packages, err := npm(lock)
		if err != nil {
			return err
		}
		*b.Components = append(*b.Components, packages...)
	}
	e := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	return e.SetPretty(true).Encode(b)
}

// bom describes a binary. It has no time and no serial number, so that the same binary has
// the same description.
func bom(info *buildinfo.BuildInfo, version string) *cyclonedx.BOM {
	main := info.Main
	if version != "" {
		main.Version = version
	}
	b := cyclonedx.NewBOM()
	root := component(&main, cyclonedx.ComponentTypeApplication)
	b.Metadata = &cyclonedx.Metadata{Component: &root}
	toolchain := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		BOMRef: "pkg:golang/std@" + info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion,
	}
	components := []cyclonedx.Component{toolchain}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(m, cyclonedx.ComponentTypeLibrary))
	}
	b.Components = &components
	return b
}

func component(m *debug.Module, t cyclonedx.ComponentType) cyclonedx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{Type: t, Name: m.Path, Version: m.Version, BOMRef: url, PackageURL: url}
	c.Hashes = hashes(cyclonedx.HashAlgoSHA256, "h1:", m.Sum)
	return c
}

// hashes returns the hash in a checksum, or nil if that is none of the algorithm.
func hashes(algorithm cyclonedx.HashAlgorithm, prefix, checksum string) *[]cyclonedx.Hash {
	encoded, found := strings.CutPrefix(checksum, prefix)
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !found {
		return nil
	}
	return &[]cyclonedx.Hash{{Algorithm: algorithm, Value: hex.EncodeToString(sum)}}
}

// npm describes the packages of a package-lock.json, without those for development.
func npm(lock string) ([]cyclonedx.Component, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var file struct {
		Packages map[string]struct {
			Version, Integrity, License string
			Dev                         bool
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", lock, err)
	}
	const folder = "node_modules/"
	var components []cyclonedx.Component
	for _, path := range slices.Sorted(maps.Keys(file.Packages)) {
		p := file.Packages[path]
		i := strings.LastIndex(path, folder)
		if i < 0 || p.Dev {
			continue
		}
		name := path[i+len(folder):]
		// The @ of a scope is encoded: https://github.com/package-url/purl-spec
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + p.Version
		c := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: p.Version, BOMRef: url, PackageURL: url,
		}
		if p.License != "" {
			c.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: p.License}}}
		}
		c.Hashes = hashes(cyclonedx.HashAlgoSHA512, "sha512-", p.Integrity)
		components = append(components, c)
	}
	if len(components) == 0 {
		return nil, fmt.Errorf("%s has no packages", lock)
	}
	return components, nil
}
