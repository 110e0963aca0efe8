package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

const (
	// defaultURL is where a daemon listens by default.
	defaultURL = "http://127.0.0.1:8080"

	maxSettingsBytes = 1 << 20
	maxTokenBytes    = 4096
	maxNameBytes     = 64
)

// Access are the flags that say which daemon to call, and how.
type Access struct {
	Context string `name:"context" help:"Context to use (default the current one of lbd ctl context)" env:"LBD_CTL_CONTEXT" placeholder:"NAME"`
	entry
}

// entry is what flags and a context in the configuration file have. Paths in the file are absolute, or
// relative to its directory.
type entry struct {
	URL       string `json:"url" name:"url" help:"URL of the daemon: http://HOST:PORT, https://HOST:PORT or unix:///PATH (default that of the context, else http://127.0.0.1:8080)" env:"LBD_CTL_URL" placeholder:"URL"`
	TokenFile string `json:"token_file,omitempty" help:"File with the token of the caller (default that of the context)" env:"LBD_CTL_TOKEN_FILE" placeholder:"FILE"`
	CA        string `json:"ca,omitempty" name:"ca" help:"Authorities, in PEM, that sign the certificate of the daemon (default those of the context, else of the system)" env:"LBD_CTL_CA" placeholder:"FILE"`
	Cert      string `json:"cert,omitempty" help:"Client certificate chain, in PEM (default that of the context)" env:"LBD_CTL_CERT" placeholder:"FILE"`
	Key       string `json:"key,omitempty" help:"Private key of the client certificate, in PEM (default that of the context)" env:"LBD_CTL_KEY" placeholder:"FILE"`
}

// settings are the contents of the configuration file of lbd ctl.
type settings struct {
	Current  string           `json:"current,omitempty"`
	Contexts map[string]entry `json:"contexts"`
}

// settingsPath returns the path of the configuration file: below XDG_CONFIG_HOME, else ~/.config.
func settingsPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usage("find the configuration of lbd ctl: %w", err)
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "lbd", "config.yaml"), nil
}

// loadSettings reads the configuration file. An absent file has no contexts. Who can write the file can
// choose where a token is sent.
func loadSettings() (settings, error) {
	s := settings{Contexts: map[string]entry{}}
	path, err := settingsPath()
	if err != nil {
		return s, err
	}
	body, err := readLimited(path, maxSettingsBytes, 0o002)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, usage("read the configuration of lbd ctl: %w", err)
	}
	values, err := text.FromYAML(body, nil)
	if errors.Is(err, text.ErrEmpty) {
		return s, nil
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(values))
		d.DisallowUnknownFields()
		err = d.Decode(&s)
	}
	if err != nil {
		return s, usage("read the configuration of lbd ctl: %s: %w", path, err)
	}
	if s.Contexts == nil {
		s.Contexts = map[string]entry{}
	}
	for name, e := range s.Contexts {
		if err := validName(name); err != nil {
			return s, usage("%s: %w", path, err)
		}
		for _, file := range []*string{&e.TokenFile, &e.CA, &e.Cert, &e.Key} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(filepath.Dir(path), *file)
			}
		}
		s.Contexts[name] = e
	}
	return s, nil
}

// save replaces the configuration file.
func (s settings) save() error {
	path, err := settingsPath()
	if err != nil {
		return err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the configuration of lbd ctl: %w", err)
	}
	if body, err = text.ToYAML(body); err != nil {
		return fmt.Errorf("write the configuration of lbd ctl: %w", err)
	}
	if err := replaceFile(path, body); err != nil {
		return usage("write the configuration of lbd ctl: %w", err)
	}
	return nil
}

// replaceFile writes a file that only its owner may read, by renaming a new one.
func replaceFile(path string, body []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".config-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(body)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func validName(name string) error {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("context %q: a name has 1 to %d bytes, and no spaces or control characters", name, maxNameBytes)
	}
	return nil
}

// find returns the context of a name.
func (s settings) find(name string) (entry, error) {
	if e, ok := s.Contexts[name]; ok {
		return e, nil
	}
	known := slices.Sorted(maps.Keys(s.Contexts))
	if len(known) == 0 {
		return entry{}, usage("context %q not found: there are no contexts; lbd ctl context set creates one", name)
	}
	return entry{}, usage("context %q not found; there are: %s", name, strings.Join(known, ", "))
}

// connection is a daemon, and how to reach it.
type connection struct {
	entry
	url     *url.URL
	context string // the name of the context; empty without one
	token   string // never printed
}

// connection chooses the daemon: flags and the environment take precedence over the context. A URL
// that does not come from a context gets no credentials of the current context, which are for another
// daemon.
func (a Access) connection() (connection, error) {
	var c connection
	if a.URL == "" || a.Context != "" {
		s, err := loadSettings()
		if err != nil {
			return c, err
		}
		if name := cmp.Or(a.Context, s.Current); name != "" {
			if c.entry, err = s.find(name); err != nil {
				return c, err
			}
			c.context = name
		}
	}
	c.URL = cmp.Or(a.URL, c.URL, defaultURL)
	c.TokenFile, c.CA = cmp.Or(a.TokenFile, c.TokenFile), cmp.Or(a.CA, c.CA)
	c.Cert, c.Key = cmp.Or(a.Cert, c.Cert), cmp.Or(a.Key, c.Key)
	var err error
	if c.url, err = parseURL(c.URL); err != nil {
		return c, err
	}
	if (c.Cert == "") != (c.Key == "") {
		return c, usage("set both --cert and --key, or neither")
	}
	if c.url.Scheme != "https" && (c.CA != "" || c.Cert != "") {
		return c, usage("--ca, --cert and --key require an https:// URL, not %s", c.URL)
	}
	if c.TokenFile != "" {
		c.token, err = readToken(c.TokenFile)
	}
	return c, err
}

// parseURL returns the URL of a daemon without a trailing slash.
func parseURL(s string) (*url.URL, error) {
	const forms = "http://HOST:PORT, https://HOST:PORT or unix:///PATH"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, usage("URL of the daemon: %s is required", forms) // err would have a password
	case u.User != nil:
		return nil, usage("URL of the daemon: must not have a user or a password: use --token-file")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, usage("URL %q: must not have a query or a fragment", s)
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
	case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		u.Path = strings.TrimRight(u.Path, "/")
	default:
		return nil, usage("URL %q: must have the form %s", s, forms)
	}
	return u, nil
}

// isReadable reports whether a network may read what is sent.
func (c connection) isReadable() bool {
	ip := net.ParseIP(c.url.Hostname())
	return c.url.Scheme == "http" && c.url.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// readToken reads a token file: one line. Other users than its owner and group must not have access.
func readToken(path string) (string, error) {
	body, err := readLimited(path, maxTokenBytes, 0o006)
	if err != nil {
		return "", usage("read the token: %w", err)
	}
	token := strings.TrimSpace(string(body))
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || strings.ContainsFunc(token, bad) {
		return "", usage("token file %s: must have the token in one line, and nothing else", path)
	}
	return token, nil
}

// readLimited reads a file of limited size, which must not have any of the modes that are forbidden.
func readLimited(path string, limit int64, forbidden fs.FileMode) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var body []byte
	switch {
	case err != nil:
	case info.Mode()&forbidden != 0:
		const format = "every user can read or write %s (mode %04o): run chmod o-rwx on it"
		err = fmt.Errorf(format, path, info.Mode().Perm())
	default:
		body, err = readAll(f, path, limit)
	}
	return body, errors.Join(err, f.Close())
}
