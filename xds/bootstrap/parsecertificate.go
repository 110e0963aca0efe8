package bootstrap

import (
	"os"
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

func (f fields) certificateProviders() map[string]*CertificateProvider {
	x := f.get("certificate_providers")
	if !f.is(x, object) {
		return nil
	}
	all := map[string]*CertificateProvider{}
	for _, m := range x.members {
		o, ok := f.object(m.value, "plugin_name", "config")
		if !ok {
			continue
		}
		if plugin := o.text("plugin_name"); plugin != pluginName {
			f.warnValue(o.get("plugin_name"), "%q is a plugin that lbd does not have, which has %q: a Cluster that names %q is refused", plugin, pluginName, m.name)
			continue
		}
		config := o.get("config")
		if config.none() {
			f.reject(o.at, config.path, "is missing; write which files are to be read, such as %s", `{"ca_certificate_file": "/etc/lbd/ca.pem"}`)
			continue
		}
		if p := f.certificates(config, true); p != nil {
			all[m.name] = p
		}
	}
	return all
}

// certificates reads the files of a provider; nil if there are none, which is rejected if
// they are required.
func (v *validator) certificates(x *value, required bool) *CertificateProvider {
	o, ok := v.object(x, "certificate_file", "private_key_file", "ca_certificate_file", "refresh_interval", "spiffe_trust_bundle_map_file")
	if !ok {
		return nil
	}
	p := &CertificateProvider{
		certificateFile:   o.text("certificate_file"),
		privateKeyFile:    o.text("private_key_file"),
		caCertificateFile: o.text("ca_certificate_file"),
		refresh:           o.refresh(),
		logger:            v.logger,
	}
	if spiffe := o.get("spiffe_trust_bundle_map_file"); !spiffe.none() {
		v.warnValue(spiffe, "has no effect: lbd knows no SPIFFE bundle maps (an experiment of grpc-go, off there too)")
	}
	switch {
	case p.certificateFile == "" && p.privateKeyFile == "" && p.caCertificateFile == "":
		if required {
			v.rejectValue(x, "names no file; write certificate_file with private_key_file, or ca_certificate_file, or all of them")
		}
		return nil
	case p.certificateFile == "" && p.privateKeyFile != "":
		v.rejectValue(o.get("private_key_file"), "is of no use without certificate_file")
		return nil
	case p.certificateFile != "" && p.privateKeyFile == "":
		v.rejectValue(o.get("certificate_file"), "is of no use without private_key_file")
		return nil
	case filepath.Dir(p.certificateFile) != filepath.Dir(p.privateKeyFile):
		v.rejectValue(o.get("private_key_file"), "is in %s and certificate_file in %s: both files must be in the same directory, as gRPC requires",
			filepath.Dir(p.privateKeyFile), filepath.Dir(p.certificateFile))
		return nil
	}
	if p.privateKeyFile != "" {
		v.secret(o.get("private_key_file"))
	}
	if _, _, err := p.Certificates(); err != nil {
		v.warnValue(x, "%s; until it is good, no connection is made", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return p
}

func (f fields) refresh() time.Duration {
	x := f.get("refresh_interval")
	if !f.is(x, str) {
		return defaultRefresh
	}
	seconds, isDuration := strings.CutSuffix(x.text, "s")
	d, err := time.ParseDuration(x.text)
	switch {
	case !isDuration || err != nil || strings.Trim(seconds, "0123456789.") != "" || strings.HasPrefix(seconds, "."):
		f.rejectValue(x, `%q is no duration in seconds; write "600s", or "0.5s"`, x.text)
	case d == 0:
		return zeroRefresh
	}
	return d
}

const worldReadable = 0o004

// secret warns of a file with a secret, whose path is a value, that every user can read.
func (v *validator) secret(x *value) {
	info, err := os.Stat(x.text)
	if err != nil || info.Mode().Perm()&worldReadable == 0 {
		return // a file that cannot be read is reported elsewhere
	}
	v.warnValue(x, "%s has a secret and every user can read it (mode %04o): run chmod o-rwx on it, or set defaultMode of a Kubernetes volume to 0440",
		x.text, info.Mode().Perm())
}
