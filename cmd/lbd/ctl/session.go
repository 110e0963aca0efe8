package ctl

import (
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
)

// Options are the flags of all commands.
type Options struct {
	Access
	Output  string        `short:"o" help:"Output format: ${enum} (default ${default})" enum:"table,json,yaml,name" default:"table" placeholder:"FORMAT"`
	Timeout time.Duration `help:"Maximum time for one request, in addition to the time that a pick may wait (default ${default})" default:"30s" placeholder:"DURATION"`
}

// Validate checks what kong does not check. kong calls it.
func (o *Options) Validate() error {
	if o.Timeout <= 0 {
		return fmt.Errorf("--timeout must be positive, not %v", o.Timeout)
	}
	return nil
}

// session is one run of a command.
type session struct {
	client *client
	output string
	// stdout gets the result, and stderr previews, questions, warnings and notices.
	stdout *output
	stderr io.Writer
}

// output is standard output. It keeps its first error.
type output struct {
	to  io.Writer
	err error
}

// Write writes to standard output, unless it has failed.
func (o *output) Write(p []byte) (n int, err error) {
	if o.err == nil {
		n, o.err = o.to.Write(p)
	}
	return n, o.err
}

// written returns the error of the output.
func (s *session) written() error {
	if s.stdout.err != nil {
		return usage("write the output: %w", s.stdout.err)
	}
	return nil
}

// local returns a session without a client.
func (o *Options) local(app *kong.Kong) *session {
	return &session{output: o.Output, stdout: &output{to: app.Stdout}, stderr: app.Stderr}
}

// notice prints a line to standard error.
func (s *session) notice(format string, args ...any) {
	fmt.Fprintln(s.stderr, "lbd: "+escape(fmt.Sprintf(format, args...)))
}

// with runs a command in a session.
func (o *Options) with(app *kong.Kong, run func(*session) error) error {
	s := o.local(app)
	to, err := o.connection()
	if err != nil {
		return err
	}
	if s.client, err = newClient(to, o.Timeout); err != nil {
		return err
	}
	defer s.client.http.CloseIdleConnections()
	if to.token != "" && to.isReadable() {
		s.notice("warning: the token is sent to %s without TLS", to.url.Host)
	}
	err = run(s)
	if failed := s.written(); failed != nil {
		return failed
	}
	return err
}
