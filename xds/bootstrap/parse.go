package bootstrap

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// The environment variables of gRPC clients.
const (
	// FileVariable is the path of a file.
	FileVariable = "GRPC_XDS_BOOTSTRAP"
	// ContentVariable is the JSON itself, used if FileVariable is not set.
	ContentVariable = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

// MaxBytes is the maximum size of a bootstrap.
const MaxBytes = 1 << 20

// Options are the parameters of Load and Parse.
type Options struct {
	// File is the path for [Load] (default: the environment variables).
	File string
	// Source is the name of the bootstrap in the errors of [Parse] (default "bootstrap").
	Source string
	// Version is the version of the user agent.
	Version string
	// Logger logs certificates that cannot be read again. Default: no log.
	Logger *slog.Logger
}

// Load reads the bootstrap of o.File, [FileVariable] or [ContentVariable], in this order. It
// returns nil if none of them is set. The error is an [*InvalidError], or that of reading
// the file, with its source.
func Load(o Options) (*Config, error) {
	file := o.File
	o.Source = "bootstrap file " + file
	if file == "" {
		file = os.Getenv(FileVariable)
		o.Source = fmt.Sprintf("bootstrap file %s (of %s)", file, FileVariable)
	}
	if file != "" {
		body, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Source, err)
		}
		return Parse(body, o)
	}
	if content := os.Getenv(ContentVariable); content != "" {
		o.Source = "bootstrap in " + ContentVariable
		return Parse([]byte(content), o)
	}
	return nil, nil
}

// readFile reads at most one byte more than MaxBytes. The error does not name the file.
func readFile(name string) (body []byte, err error) {
	f, err := os.Open(name)
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(f, MaxBytes+1))
		_ = f.Close() // opened for reading
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return body, err
}

// Parse reads a bootstrap. The error is an [*InvalidError].
func Parse(body []byte, o Options) (*Config, error) {
	o.Source = cmp.Or(o.Source, "bootstrap")
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	v := &validator{body: bytes.TrimPrefix(body, []byte("\ufeff")), logger: o.Logger}
	c := v.parse(o)
	if all := v.problems.all(); len(all) > 0 {
		return nil, &InvalidError{Source: o.Source, Problems: all}
	}
	c.Warnings = v.warnings.all()
	return c, nil
}

func (v *validator) parse(o Options) *Config {
	c := &Config{Source: o.Source}
	if len(v.body) > MaxBytes {
		v.reject(-1, "", "has more than %d bytes", MaxBytes)
		return c
	}
	root := v.readTree()
	if root == nil {
		return c
	}
	top, ok := v.object(root, "xds_servers", "node", "authorities", "certificate_providers",
		"client_default_listener_resource_name_template", "server_listener_resource_name_template", "allowed_grpc_services")
	if !ok {
		if root.kind == null {
			v.rejectValue(root, "is null; it must be an object")
		}
		return c
	}
	if x := top.get("allowed_grpc_services"); !x.none() {
		v.warnValue(x, "has no effect: lbd calls no side channels")
	}
	c.Node = top.node(o.Version)
	servers := top.get("xds_servers")
	c.Servers = v.servers(servers)
	if servers.none() || servers.kind == list && len(servers.elements) == 0 {
		v.rejectValue(servers, `has no server; write [{"server_uri": "HOST:PORT", "channel_creds": [{"type": "insecure"}]}]`)
	}
	c.Authorities = top.authorities(c.Servers)
	c.ListenerTemplate = top.listenerTemplate(c.Authorities)
	c.CertificateProviders = top.certificateProviders()
	return c
}

// listenerTemplate reads the template of targets without an authority.
func (f fields) listenerTemplate(known map[string]Authority) string {
	x := f.get("client_default_listener_resource_name_template")
	template := f.string(x)
	if template == "" {
		return everyTarget
	}
	f.warnConstant(x, template)
	if !strings.HasPrefix(template, xdstp) {
		return template
	}
	authority, federated := authorityOf(strings.ReplaceAll(template, everyTarget, "name"))
	if !federated {
		f.rejectValue(x, "%q must be xdstp://AUTHORITY/envoy.config.listener.v3.Listener/%%s, or not begin with xdstp:", template)
	} else if _, ok := known[authority]; !ok {
		f.rejectValue(x, "%q names the authority %q, which authorities does not have", template, authority)
	}
	return template
}

// warnConstant warns of a template that is the name of the same Listener for all targets.
func (v *validator) warnConstant(x *value, template string) {
	if !strings.Contains(template, everyTarget) {
		v.warnValue(x, "%q has no %s: every target has the same Listener", template, everyTarget)
	}
}

// authorities reads the authorities. Those without servers use the servers of the top.
func (f fields) authorities(top []Server) map[string]Authority {
	x := f.get("authorities")
	if !f.is(x, object) {
		return nil
	}
	all := map[string]Authority{}
	for _, m := range x.members {
		if m.name == "" {
			f.warn(m.at, m.path, "an authority needs a name: ignored, and so are names that begin with xdstp:///")
			continue
		}
		a := Authority{ListenerTemplate: defaultTemplate(m.name), Servers: top}
		o, _ := f.object(m.value, "client_listener_resource_name_template", "xds_servers")
		if x := o.get("client_listener_resource_name_template"); !x.none() {
			a.ListenerTemplate = cmp.Or(f.string(x), a.ListenerTemplate)
			if !strings.HasPrefix(a.ListenerTemplate, authorityPrefix(m.name)) {
				f.rejectValue(x, "%q must begin with %s", a.ListenerTemplate, authorityPrefix(m.name))
			}
			f.warnConstant(x, a.ListenerTemplate)
		}
		if own := f.servers(o.get("xds_servers")); len(own) > 0 {
			a.Servers = own
		}
		all[m.name] = a
	}
	return all
}
