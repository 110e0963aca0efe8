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

// Kubernetes gives every container variables for each Service of its namespace, with the
// name of the Service in front: lbd, or a name that begins with lbd-.
var (
	ofServiceLbd   = regexp.MustCompile(`^LBD_(SERVICE_|PORT)`)
	ofOtherService = regexp.MustCompile(`^LBD_\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)
	portOfService  = regexp.MustCompile(`^LBD_\w+_PORT=(tcp|udp|sctp)://`)
)

// unknownVariables returns the variables of environ that are named like lbd's and are
// none, sorted; those that Kubernetes gives aside.
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

// warnOfVariables logs the variables that look like lbd's but have no effect. Their
// values are left out: they may be secrets.
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
