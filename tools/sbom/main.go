// Command sbom prints the software bill of materials of a Go binary: the modules and the
// toolchain that it was built from, in CycloneDX's JSON.
//
//	sbom [-version VERSION] BINARY
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the main module, instead of that in the binary")
	flag.Parse()
	if err := run(flag.Arg(0), *version, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, version string, out io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	e := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	return e.SetPretty(true).Encode(bom(info, version))
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
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && m.Sum != "" {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
