package bootstrap

import (
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// pluginName is the only certificate provider of gRPC.
const pluginName = "file_watcher"

// The refresh intervals without refresh_interval, and with 0s, as in grpc-go.
const (
	defaultRefresh = 10 * time.Minute
	zeroRefresh    = time.Hour
)

// certificateProviders reads the certificate providers, by instance.
func (f fields) certificateProviders(logger *slog.Logger) map[string]*CertificateProvider {
	x, path := f.get("certificate_providers")
	if !f.is(x, path, object) {
		return nil
	}
	all := map[string]*CertificateProvider{}
	for _, m := range x.members {
		at := join(path, m.name)
		o, ok := f.object(m.value, at, "plugin_name", "config")
		if !ok {
			continue
		}
		if plugin := o.text("plugin_name"); plugin != pluginName {
			f.warn(o.place("plugin_name"), join(at, "plugin_name"), "%q is a plugin that lbd does not have, which has %q: a Cluster that names %q is refused", plugin, pluginName, m.name)
			continue
		}
		config, below := o.get("config")
		if config == nil {
			f.reject(o.at, below, "is missing; write which files are to be read, such as %s", `{"ca_certificate_file": "/etc/lbd/ca.pem"}`)
			continue
		}
		if p := f.certificates(config, below, true, logger); p != nil {
			all[m.name] = p
		}
	}
	return all
}

// certificates reads the files of a provider; nil if there are none, which is rejected if
// they are required.
func (v *validator) certificates(x *value, path string, required bool, logger *slog.Logger) *CertificateProvider {
	o, ok := v.object(x, path, "certificate_file", "private_key_file", "ca_certificate_file", "refresh_interval", "spiffe_trust_bundle_map_file")
	if !ok {
		return nil
	}
	p := &CertificateProvider{
		certificateFile:   o.text("certificate_file"),
		privateKeyFile:    o.text("private_key_file"),
		caCertificateFile: o.text("ca_certificate_file"),
		refresh:           o.refresh(),
		logger:            logger,
	}
	if spiffe, path := o.get("spiffe_trust_bundle_map_file"); spiffe != nil {
		v.warn(spiffe.at, path, "has no effect: lbd knows no SPIFFE bundle maps (an experiment of grpc-go, off there too)")
	}
	switch {
	case p.certificateFile == "" && p.privateKeyFile == "" && p.caCertificateFile == "":
		if required {
			v.reject(x.at, path, "names no file; write certificate_file with private_key_file, or ca_certificate_file, or all of them")
		}
		return nil
	case p.certificateFile == "" && p.privateKeyFile != "":
		v.reject(o.place("private_key_file"), join(path, "private_key_file"), "is of no use without certificate_file")
		return nil
	case p.certificateFile != "" && p.privateKeyFile == "":
		v.reject(o.place("certificate_file"), join(path, "certificate_file"), "is of no use without private_key_file")
		return nil
	case filepath.Dir(p.certificateFile) != filepath.Dir(p.privateKeyFile):
		v.reject(o.place("private_key_file"), join(path, "private_key_file"), "is in %s and certificate_file in %s: both files must be in the same directory, as gRPC requires",
			filepath.Dir(p.privateKeyFile), filepath.Dir(p.certificateFile))
		return nil
	}
	if p.privateKeyFile != "" {
		v.secret(o.place("private_key_file"), join(path, "private_key_file"), p.privateKeyFile)
	}
	if _, _, err := p.Certificates(); err != nil {
		v.warn(x.at, path, "%s; until it is good, no connection is made", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return p
}

// refresh reads the refresh interval.
func (f fields) refresh() time.Duration {
	x, path := f.get("refresh_interval")
	if !f.is(x, path, text) {
		return defaultRefresh
	}
	seconds, isDuration := strings.CutSuffix(x.text, "s")
	d, err := time.ParseDuration(x.text)
	switch {
	case !isDuration || err != nil || strings.Trim(seconds, "0123456789.") != "" || strings.HasPrefix(seconds, "."):
		f.reject(x.at, path, `%q is no duration in seconds; write "600s", or "0.5s"`, x.text)
	case d == 0:
		return zeroRefresh
	}
	return d
}
