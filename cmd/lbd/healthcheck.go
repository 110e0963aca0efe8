package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
)

const healthcheckTimeout = 5 * time.Second

type healthcheckCommand struct {
	ConfigFile string   `name:"config" help:"Configuration file of the daemon, to read its address from (default none)" env:"LBD_CONFIG" placeholder:"FILE"`
	Listen     []string `help:"Address of the daemon; the first one is used (default ${default})" default:"127.0.0.1:8080" env:"LBD_LISTEN" placeholder:"ADDRESS"`
	Live       bool     `help:"Check /livez (the daemon answers) instead of /readyz (default false)"`

	Wait time.Duration `help:"Maximum time to wait until the check succeeds (default ${default}: check once)" default:"0s" placeholder:"DURATION"`
}

// healthcheckPause is the time between two requests of a healthcheck that waits.
const healthcheckPause = 50 * time.Millisecond

// Run calls /readyz or /livez until the check succeeds or the wait is over.
func (c *healthcheckCommand) Run(ctx context.Context) error {
	return retry(ctx, c.Wait, c.ask)
}

// retry calls ask until it succeeds or the wait is over, at least once, and returns its last error.
func retry(ctx context.Context, wait time.Duration, ask func(context.Context) error) error {
	end := time.Now().Add(wait)
	for {
		err := ask(ctx)
		if err == nil || time.Until(end) <= 0 {
			return err
		}
		select {
		case <-time.After(min(healthcheckPause, time.Until(end))):
		case <-ctx.Done():
			return err
		}
	}
}

func (c *healthcheckCommand) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	specs, err := listen.Parse(c.Listen)
	if err != nil || len(specs) == 0 {
		return fmt.Errorf("--listen: %w", err)
	}
	client, scheme, host := dialFor(specs[0])
	path, want := "/readyz?verbose", "ready"
	if c.Live {
		path, want = "/livez", "alive"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("--listen %q: %w", c.Listen[0], err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("connect to the daemon: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("read the response of the daemon: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not %s: %s: %s", want, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// dialFor returns a client for a daemon that listens on an address, and the scheme and host for
// URLs. It uses loopback for an unspecified address.
func dialFor(spec listen.Spec) (client *http.Client, scheme, host string) {
	address := spec.Address
	if path, ok := strings.CutPrefix(address, listen.UnixPrefix); ok {
		return &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}}, "http", "lbd"
	}
	if h, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("localhost", port)
		}
	}
	if spec.TLS {
		// The certificate is for callers from other machines: it does not name the
		// address that the daemon has here, and the request has no credentials.
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as said above
		}}, "https", address
	}
	return http.DefaultClient, "http", address
}
