package main

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// knownVariables returns the environment variables of all flags.
func knownVariables() map[string]bool {
	known := make(map[string]bool)
	for _, command := range kong.Must(new(cli)).Model.Children {
		for _, flag := range command.Flags {
			for _, v := range flag.Envs {
				known[v] = true
			}
		}
	}
	return known
}

// Kubernetes sets variables for each Service of the namespace. They begin with the name of
// the Service, which may be lbd or begin with lbd-.
var (
	ofServiceLbd   = regexp.MustCompile(`^LBD_(SERVICE_|PORT)`)
	ofOtherService = regexp.MustCompile(`^LBD_\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)
	portOfService  = regexp.MustCompile(`^LBD_\w+_PORT=(tcp|udp|sctp)://`)
)

// unknownVariables returns the variables of environ that begin with LBD_ and are neither
// flags nor set by Kubernetes, sorted.
func unknownVariables(environ []string, known map[string]bool) (unknown []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "LBD_") || known[name] || ofServiceLbd.MatchString(name) ||
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
	known := knownVariables()
	for _, name := range unknownVariables(environ, known) {
		attributes := []any{"variable", name}
		if meant := text.Closest(name, slices.Sorted(maps.Keys(known))); meant != "" {
			attributes = append(attributes, "did_you_mean", meant)
		}
		log.Warn("unknown environment variable, ignored", attributes...)
	}
}
