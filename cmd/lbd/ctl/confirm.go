package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// errDeclined is the answer no.
var errDeclined = &failure{exitNegative, errors.New("not confirmed: nothing was changed")}

// confirm asks a question on the terminal. Everything but yes is no.
func (s *session) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(s.stderr, "%s [y/N] ", escape(question))
	answered := make(chan string, 1)
	go func() { // A terminal cannot be read with a context: the read ends with the process.
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answered <- line
	}()
	select {
	case line := <-answered:
		if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
			return nil
		}
		return errDeclined
	case <-ctx.Done():
		fmt.Fprintln(s.stderr)
		return errDeclined
	}
}
