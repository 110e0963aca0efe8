// Command image writes the container image of lbd as an archive in OCI's layout, for one or more
// platforms. It needs no container runtime, and no registry: the image has no base.
//
//	image -version VERSION -licenses FILE,... -o FILE ARCH=BINARY...
//
// The same input has the same bytes: the time of everything is SOURCE_DATE_EPOCH, 0 without it.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	version := flag.String("version", "unknown", "version of lbd")
	licenses := flag.String("licenses", "", "files for the directory /licenses, separated by commas")
	file := flag.String("o", "", "file to write")
	flag.Parse()
	split := func(r rune) bool { return r == ',' }
	if err := run(*version, strings.FieldsFunc(*licenses, split), *file, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(version string, licenses []string, file string, binaries []string) error {
	var epoch int64
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		var err error
		if epoch, err = strconv.ParseInt(s, 10, 64); err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
	}
	index, err := build(version, licenses, time.Unix(epoch, 0).UTC(), binaries)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	return archive(file, dir, time.Unix(epoch, 0).UTC())
}

// build returns an index with an image of each platform, under a name with the version.
func build(version string, licenses []string, at time.Time, binaries []string) (v1.ImageIndex, error) {
	if len(binaries) == 0 {
		return nil, fmt.Errorf("ARCH=BINARY is missing")
	}
	platforms := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range binaries {
		arch, binary, ok := strings.Cut(one, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not ARCH=BINARY", one)
		}
		image, err := platform(version, licenses, arch, binary, at)
		if err != nil {
			return nil, err
		}
		platforms = mutate.AppendManifests(platforms, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: platforms, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "lbd:" + tag(version)}},
	}), nil
}

// tag returns a version as a tag of an image: other characters become hyphens.
func tag(version string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || slices.Contains([]rune("._-"), r) {
			return r
		}
		return '-'
	}, version)
}

// platform returns the image of one platform. Its config is that of the Dockerfile.
func platform(version string, licenses []string, arch, binary string, at time.Time) (v1.Image, error) {
	content, err := layer(binary, licenses, at)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: content, History: v1.History{Created: v1.Time{Time: at}, CreatedBy: "lbd " + version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: at}
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", user, user),
		Env:          []string{"PATH=/", "SSL_CERT_FILE=" + certificates, "LBD_LISTEN=0.0.0.0:8080", "LBD_DATA=/data"},
		Entrypoint:   []string{"/lbd"},
		Healthcheck:  &v1.HealthConfig{Test: []string{"CMD", "/lbd", "healthcheck"}},
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		WorkingDir:   "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "lbd",
			"org.opencontainers.image.description": "gRPC's xDS load balancing over HTTP",
			"org.opencontainers.image.source":      "https://github.com/lbd-dev/lbd",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     version,
		},
	}
	return mutate.ConfigFile(image, config)
}
