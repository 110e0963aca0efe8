package lbdclient

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Mode is how a client gets its picks.
type Mode string

const (
	// ModeBatch takes picks from a list that is in memory, and reports to lbd every few seconds how requests ended. It
	// is the default.
	ModeBatch Mode = "batch"
	// ModePick asks lbd for a pick for each request. It is for processes that end after a few requests.
	ModePick Mode = "pick"
	// ModeLease takes a lease for each request: circuit breaking and least_request are exact.
	ModeLease Mode = "lease"
)

// Config has the settings of a [Client]. The zero value of each setting is its default.
type Config struct {
	// Address of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else the first of
	// unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080.
	Address string
	// Mode is how the client gets its picks. Default: ModeBatch.
	Mode Mode
	// Token for lbd, with the roles pick and read. Default without TokenFile: environment LBD_TOKEN.
	Token string
	// TokenFile has the token, and is read again after lbd rejected it. Default without Token: environment
	// LBD_TOKEN_FILE.
	TokenFile string
	// CA is the PEM file of the certificates that may sign that of lbd. Default: environment LBD_CA, else those of the
	// system.
	CA string
	// Owner is the name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID.
	Owner string
	// Hosts says what requests to a host are for: a cluster whose name is not valid in a URL, a target, or a cluster with
	// hash keys. Upper and lower case are the same.
	Hosts map[string]Host
	// Fallback is HOST:PORT for requests while lbd is unreachable and the last batch is older than StaleFor. Default:
	// such requests fail.
	Fallback string
	// StaleFor is how long the last batch is used while lbd is unreachable. Default: 1 min; negative: not at all.
	StaleFor time.Duration
	// MaxAge is the age at which a batch is replaced at the latest. Each batch has its own, from 80 % of MaxAge on, so
	// that clients do not call lbd at the same time. Default: 10 s.
	MaxAge time.Duration
	// ConnectTimeout is the time to connect to an endpoint, and that for the TLS handshake with it, at most. After it,
	// the try has failed, and the request is retried. It does not hold for Transport.Base. Default: 5 s.
	ConnectTimeout time.Duration
	// Retries of a request, at most. Default: 2; negative: none.
	Retries int
	// MaxTokens is the size of the budget of retries of a cluster (gRFC A6). Default: 100.
	MaxTokens float64
	// TTL of the lease of a request without a deadline. Default: 30 s.
	TTL time.Duration
	// ReportInterval is the time between two reports of how requests ended. Default: 5 s.
	ReportInterval time.Duration
	// OnAttempt is called when a try has ended, before the next one, and OnState when the state of lbd has changed. They
	// are called in any goroutine, also at the same time. What they do takes the time of a request; a panic is
	// recovered, and logged: by slog.Default() without Logger.
	OnAttempt func(Attempt)
	OnState   func(State)
	// Logger gets changes of the state, and at the level debug each try. No token, hash key or query is logged. Default:
	// no logs.
	Logger *slog.Logger
	// found says how Address was found.
	found string
}

// reporter returns a name for the reports of one client. In containers, other processes may have the same host name and
// process ID.
func reporter() string { return fmt.Sprintf("%s/%08x", process(), rand.Uint32()) }

// process returns HOSTNAME/PID.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s/%d", host, os.Getpid())
}

// withDefaults returns the config with a value for each setting.
func (c Config) withDefaults() (Config, error) {
	c.Mode = cmp.Or(c.Mode, ModeBatch)
	if !slices.Contains([]Mode{ModeBatch, ModePick, ModeLease}, c.Mode) {
		return c, fmt.Errorf("mode: %q is not batch, pick or lease", c.Mode)
	}
	c.found = "the setting Address"
	if c.Address == "" {
		c.Address, c.found = os.Getenv("LBD"), "environment LBD"
	}
	if c.Address == "" {
		c.Address, c.found = defaultAddress(), "default; set LBD"
	}
	if c.Token == "" && c.TokenFile == "" {
		c.Token, c.TokenFile = os.Getenv("LBD_TOKEN"), os.Getenv("LBD_TOKEN_FILE")
	}
	c.CA = cmp.Or(c.CA, os.Getenv("LBD_CA"))
	hosts := c.Hosts
	c.Hosts = make(map[string]Host, len(hosts))
	for name, host := range hosts {
		var err error
		name = strings.ToLower(name)
		if host.Cluster, err = host.name(name); err != nil {
			return c, err
		}
		c.Hosts[name] = host
	}
	c.Owner = cmp.Or(c.Owner, os.Getenv("LBD_OWNER"), process())
	c.StaleFor = cmp.Or(c.StaleFor, time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, 10*time.Second)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.Retries = cmp.Or(c.Retries, 2)
	c.MaxTokens = cmp.Or(c.MaxTokens, 100)
	c.TTL = cmp.Or(c.TTL, 30*time.Second)
	c.ReportInterval = cmp.Or(c.ReportInterval, 5*time.Second)
	if c.MaxAge < 0 || c.ConnectTimeout < 0 || c.MaxTokens < 0 || c.TTL < 0 || c.ReportInterval < 0 {
		return c, fmt.Errorf("MaxAge, ConnectTimeout, MaxTokens, TTL and ReportInterval must not be negative")
	}
	return c, nil
}

// defaultAddress returns the socket of a daemon that runs on this machine, else the address that lbd listens on by
// default.
func defaultAddress() string {
	for _, path := range []string{"/run/lbd.sock", "/run/lbd/lbd.sock"} {
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
			return "unix:" + path
		}
	}
	return "http://localhost:8080"
}
