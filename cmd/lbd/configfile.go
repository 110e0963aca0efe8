package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// maxConfigBytes is the maximum size of a configuration file.
const maxConfigBytes = 1 << 20

// configFile has values of flags. The command line and the environment take precedence.
type configFile struct {
	path   string
	values map[string]any
}

// readConfigFile reads a YAML file whose keys are the names of flags.
func readConfigFile(path string) (*configFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if info.Size() > maxConfigBytes {
		return nil, fmt.Errorf("read the configuration: %s is larger than %d bytes", path, maxConfigBytes)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	f := &configFile{path: path}
	values, err := text.FromYAML(body, nil)
	if err == nil {
		err = json.Unmarshal(values, &f.values)
	}
	if err != nil && !errors.Is(err, text.ErrEmpty) {
		return nil, fmt.Errorf("read the configuration %s as YAML: %w", path, err)
	}
	return f, nil
}

// Validate rejects keys that are not flags of serve. kong calls it.
func (f *configFile) Validate(app *kong.Application) error {
	known := make(map[string]bool)
	for _, flag := range serveFlags(app) {
		known[flag.Name] = true
	}
	delete(known, "config")
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !known[key] {
			unknown = append(unknown, fmt.Sprintf("%q", key))
		}
	}
	if unknown == nil {
		return nil
	}
	return fmt.Errorf("configuration %s: unknown key %s; the keys are %s",
		f.path, strings.Join(unknown, ", "), strings.Join(slices.Sorted(maps.Keys(knownVariables())), ", "))
}

// Resolve returns the value of a flag in the file, or nil if the environment has one or the
// file has none. kong calls it only for flags that are not on the command line.
func (f *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return nil, nil
		}
	}
	switch v := f.values[flag.Name].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return nil, fmt.Errorf("configuration %s: %s: must be a value, not a map", f.path, flag.Name)
	default:
		return v, nil
	}
}

// knownVariables returns the variables of the flags of all commands.
var knownVariables = sync.OnceValue(func() map[string]bool {
	known := make(map[string]bool)
	var add func(*kong.Node)
	add = func(node *kong.Node) {
		for _, flag := range node.Flags {
			for _, v := range flag.Envs {
				known[v] = true
			}
		}
		for _, child := range node.Children {
			add(child)
		}
	}
	add(kong.Must(new(cli)).Model.Node)
	return known
})

// Kubernetes sets variables for each Service of the namespace. They begin with the name of
// the Service, which may be lbd or begin with lbd-.
var (
	ofServiceLbd   = regexp.MustCompile(`^LBD_(SERVICE_|PORT)`)
	ofOtherService = regexp.MustCompile(`^LBD_\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)
	portOfService  = regexp.MustCompile(`^LBD_\w+_PORT=(tcp|udp|sctp)://`)
)

// unknownVariables returns the variables of environ that begin with LBD_ and are neither
// flags nor set by Kubernetes, sorted.
func unknownVariables(environ []string) (unknown []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "LBD_") || knownVariables()[name] || ofServiceLbd.MatchString(name) ||
			ofOtherService.MatchString(name) || portOfService.MatchString(v) {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}

// warnOfVariables logs unknown variables, without their values, which may be secrets.
func warnOfVariables(environ []string, log *slog.Logger) {
	for _, name := range unknownVariables(environ) {
		attributes := []any{"variable", name}
		if meant := text.Closest(name, slices.Sorted(maps.Keys(knownVariables()))); meant != "" {
			attributes = append(attributes, "did_you_mean", meant)
		}
		log.Warn("unknown environment variable, ignored", attributes...)
	}
}
