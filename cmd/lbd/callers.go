package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/lbd-dev/lbd/api/accesslog"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/audit"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/logfile"
	"github.com/lbd-dev/lbd/service/observe"
)

// security has the identities of callers and what listeners need. It must be closed.
type security struct {
	config     Config
	log        *slog.Logger
	identities *access.Reloading[*access.Identities] // nil without --tokens
	tls        *access.Reloading[*tls.Config]        // nil without --tls-cert
	audit      *audit.Log                            // nil without --audit
	access     *accesslog.Log                        // nil without --access-log
	logs       []*logfile.File                       // of both
	hosts      *listen.Hosts
	start      time.Time
}

// newSecurity reads the files of --tokens and --tls-cert.
func newSecurity(c Config, lacks *overload.Monitor, log *slog.Logger) (*security, error) {
	s := &security{config: c, log: log, start: time.Now()}
	var err error
	if s.hosts, err = listen.NewHosts(c.AllowHost); err != nil {
		return nil, fmt.Errorf("--allow-host: %w", err)
	}
	if c.Tokens != "" {
		if s.identities, err = access.Open(c.Tokens, log, lacks.ReportIf); err != nil {
			return nil, fmt.Errorf("--tokens: %w", err)
		}
	}
	if c.TLSCert != "" {
		if s.tls, err = s.files().Open(log, lacks.ReportIf); err != nil {
			s.close()
			return nil, fmt.Errorf("--tls-cert, --tls-key, --tls-client-ca: %w", err)
		}
	}
	if c.Audit != "" {
		if s.audit, err = audit.Open(c.Audit, os.Stdout, log); err != nil {
			s.close()
			return nil, fmt.Errorf("--audit: %w", err)
		}
		s.logs = append(s.logs, s.audit.File)
	}
	if c.AccessLog != "" {
		if s.access, err = accesslog.Open(c.AccessLog, os.Stdout, log); err != nil {
			s.close()
			return nil, fmt.Errorf("--access-log: %w", err)
		}
		s.logs = append(s.logs, s.access.File)
	}
	return s, nil
}

// reopenLogs reopens the audit log and the access log for each signal, until ctx ends.
func (s *security) reopenLogs(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			for _, f := range s.logs {
				if err := f.Reopen(); err != nil {
					s.log.Error("cannot reopen a log: lbd continues in the old file", "log", f.Name(), "error", err)
				}
			}
		}
	}
}

func (s *security) files() listen.TLSFiles {
	return listen.TLSFiles{Certificate: s.config.TLSCert, Key: s.config.TLSKey, ClientCA: s.config.TLSClientCA}
}

func (s *security) close() {
	for _, f := range s.logs {
		_ = f.Close() // records were written when their requests ended; of other lines, what a slow file does not take in time is lost
	}
	if s.identities != nil {
		s.identities.Close()
	}
	if s.tls != nil {
		s.tls.Close()
	}
}

func (s *security) callers() *listen.Callers {
	c := &listen.Callers{Hosts: s.hosts}
	if s.identities != nil {
		c.Identities = s.identities.Current
	}
	return c
}

// certificates returns the certificate of the listeners, for reports.
func (s *security) certificates() []doctor.Certificate {
	if s.tls == nil {
		return nil
	}
	leaf := s.tls.Current().Certificates[0].Leaf
	return []doctor.Certificate{{Name: "--tls-cert", NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}}
}

// conditions returns what the operator should correct.
func (s *security) conditions() []observe.Condition {
	var all []observe.Condition
	invalid := func(flag string, since time.Time, err error, use string) {
		if err != nil {
			all = append(all, observe.Condition{
				Kind: observe.ConditionCredentialsInvalid, Subject: flag, Since: since,
				Text:   fmt.Sprintf("%s: %v; %s", flag, err, use),
				Remedy: "correct the file; lbd reads it again when it changes",
			})
		}
	}
	const keeps = "the last valid version stays in use"
	if s.identities != nil {
		since, err := s.identities.Err()
		invalid("--tokens", since, err, keeps)
	}
	if s.tls != nil {
		since, err := s.tls.Err()
		use := keeps
		if err == nil {
			leaf := s.tls.Current().Certificates[0].Leaf
			if err, since = s.files().Invalid(s.tls.Current(), time.Now()), leaf.NotAfter; time.Now().Before(leaf.NotBefore) {
				since = s.start
			}
			use = "it stays in use"
		}
		invalid("--tls-cert", since, err, use)
	}
	if s.audit != nil {
		if since, err := s.audit.Err(); err != nil {
			all = append(all, observe.Condition{
				Kind: observe.ConditionAuditFailing, Subject: s.config.Audit, Since: since,
				Text:   fmt.Sprintf("the audit log cannot be written: %v; records are lost", err),
				Remedy: "check the disk; send SIGHUP if the file was moved",
			})
		}
	}
	if s.config.Insecure {
		all = append(all, observe.Condition{
			Kind: observe.ConditionInsecure, Since: s.start,
			Text:   "lbd runs with --insecure: roles are not limited on listeners without TLS or identities",
			Remedy: "use --tokens and listeners with the option tls",
		})
	}
	return all
}

// listen returns systemd's sockets if it passes any, and otherwise listens on each
// address. A socket of systemd has the options of the address in --listen that it
// serves.
func (s *security) listen(ctx context.Context) ([]*listen.Listener, error) {
	specs, err := listen.Parse(s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	sockets, err := activated()
	if err != nil {
		return nil, err
	}
	var listeners []*listen.Listener
	for _, l := range sockets {
		inherited := s.secure(l, specOf(l, specs))
		inherited.Inherited = true
		listeners = append(listeners, inherited)
	}
	if len(sockets) > 0 {
		if missing := replaced(specs, sockets); len(missing) > 0 {
			s.log.Warn("the sockets that systemd passes replace --listen", "not_listening", missing)
		}
		return listeners, nil
	}
	for _, spec := range specs {
		l, err := listenOn(ctx, spec)
		if err != nil {
			closeAll(listeners)
			return nil, err
		}
		listeners = append(listeners, s.secure(l, spec))
	}
	return listeners, nil
}

// secure makes a listener of a socket, and logs what the operator should know of it.
func (s *security) secure(l net.Listener, spec listen.Spec) *listen.Listener {
	policy := spec.Policy(s.identities != nil, s.config.Insecure)
	if warning := spec.Warning(policy, s.config.Insecure); warning != "" {
		s.log.Warn(warning) //nolint:sloglint // it names the listener and what to do
	}
	return &listen.Listener{Listener: l, Spec: spec, Policy: policy}
}

// wrap returns the listener whose connections are served: with TLS if l asks for it.
// counted is l's socket, whose connections the frontend counts.
func (s *security) wrap(l *listen.Listener, counted net.Listener) *listen.Listener {
	wrapped := *l
	wrapped.Listener = counted
	if l.TLS {
		wrapped.Listener = tls.NewListener(counted, listen.ServerConfig(s.tls.Current))
	}
	return &wrapped
}

// specOf returns the entry of --listen that a socket of systemd serves, or the
// default for its address.
func specOf(l net.Listener, specs []listen.Spec) listen.Spec {
	for _, spec := range specs {
		if serves(l, spec.Address) {
			spec.Address = printable(l) // a socket may be reachable from more machines than --listen says
			return spec
		}
	}
	return listen.Spec{Address: printable(l), Mode: listen.DefaultMode, Roles: access.All}
}

// validateSecurity checks the flags of newSecurity against each other.
func (c *Config) validateSecurity() error {
	specs, err := listen.Parse(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key: set both or neither")
	case c.AccessLog != "" && c.AccessLog == c.Audit:
		return errors.New("--access-log and --audit: must be different files")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("--tls-client-ca requires --tls-cert")
	}
	for _, l := range specs {
		if l.TLS && c.TLSCert == "" {
			return fmt.Errorf("--listen: %s: the option tls requires --tls-cert and --tls-key", l.Address)
		}
	}
	return nil
}
