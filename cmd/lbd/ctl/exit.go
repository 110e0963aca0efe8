package ctl

import (
	"errors"
	"fmt"
)

// The exit codes of lbd ctl.
const (
	// exitNegative is the code for a negative answer: diff found a difference, a pick got no
	// endpoint, a change was not confirmed, or it names an endpoint that does not exist.
	exitNegative = 1
	// ExitUsage is the code for an invalid command line, configuration or file, and for output that
	// cannot be written.
	ExitUsage = 2
	// exitUnreachable is the code if there is no response from the daemon.
	exitUnreachable = 3
	// exitRefused is the code if the daemon refuses the request: a status from 400 to 499.
	exitRefused = 4
	// exitFailed is the code if the daemon fails (a status of at least 500), or if the response is not
	// that of an lbd.
	exitFailed = 5
	// exitInterrupted is the code if a signal ends a command that has no result yet, as of a shell.
	exitInterrupted = 130
)

// failure is an error with an exit code. Its text is empty if the output already says what it is.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// ExitCode returns the exit code of the process. kong.ExitCoder has the method.
func (f *failure) ExitCode() int { return f.code }

func usage(format string, args ...any) error {
	return &failure{ExitUsage, fmt.Errorf(format, args...)}
}

// errNegative is a negative answer that the output describes.
var errNegative = &failure{code: exitNegative}

// errInterrupted is the error of a command that a signal has ended.
var errInterrupted = &failure{exitInterrupted, errors.New("interrupted")}
