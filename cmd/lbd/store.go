package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
	"github.com/lbd-dev/lbd/xds/store/file"
)

const (
	etcdScheme = "etcd://"
	// copyDirectory is the directory of the copy of a store in etcd, in --data.
	copyDirectory = "fleet"
	// maxListedProblems limits how many unreadable records a condition names.
	maxListedProblems = 5
)

// StoreAccess are the flags of the access to etcd.
type StoreAccess struct {
	StoreCA       string `name:"store-ca" help:"Certificates of the authorities that sign etcd's certificates, in PEM; etcd is then reached with TLS (default none)" env:"LBD_STORE_CA" placeholder:"FILE"`
	StoreCert     string `name:"store-cert" help:"Client certificate chain for etcd, in PEM (default none)" env:"LBD_STORE_CERT" placeholder:"FILE"`
	StoreKey      string `name:"store-key" help:"Private key of the client certificate for etcd, in PEM (default none)" env:"LBD_STORE_KEY" placeholder:"FILE"`
	StoreUser     string `name:"store-user" help:"User name for etcd (default none)" env:"LBD_STORE_USER" placeholder:"NAME"`
	StorePassword string `name:"store-password" help:"File with the password of the user of etcd (default none)" env:"LBD_STORE_PASSWORD" placeholder:"FILE"`
}

// parseEtcd reads etcd://HOST:PORT,…/PREFIX.
func parseEtcd(url string) (etcd.Config, error) {
	rest, ok := strings.CutPrefix(url, etcdScheme)
	hosts, prefix, _ := strings.Cut(rest, "/")
	c := etcd.Config{Prefix: strings.Trim(prefix, "/")}
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		return c, fmt.Errorf("%q has %q: a store has no parameters, and its prefix no ? and #; set --store-ca and the like", url, url[i:])
	}
	if !ok || hosts == "" || c.Prefix == "" {
		return c, fmt.Errorf("%q is not etcd://HOST:PORT,.../PREFIX", url)
	}
	for endpoint := range strings.SplitSeq(hosts, ",") {
		if _, port, err := net.SplitHostPort(endpoint); err != nil || port == "" {
			return c, fmt.Errorf("%q of %q is not HOST:PORT", endpoint, url)
		}
		c.Endpoints = append(c.Endpoints, endpoint)
	}
	return c, nil
}

func (c *Config) validateStore() error {
	if c.Store != "" {
		if _, err := parseEtcd(c.Store); err != nil {
			return fmt.Errorf("--store: %w", err)
		}
	} else if c.StoreAccess != (StoreAccess{}) {
		return errors.New("--store-ca, --store-cert, --store-key, --store-user and --store-password need --store")
	}
	return c.StoreAccess.validate()
}

func (c *StoreAccess) validate() error {
	switch {
	case (c.StoreCert == "") != (c.StoreKey == ""):
		return errors.New("set both --store-cert and --store-key, or neither")
	case (c.StoreUser == "") != (c.StorePassword == ""):
		return errors.New("set both --store-user and --store-password, or neither")
	}
	return nil
}

// config returns how to reach a store in etcd.
func (c *StoreAccess) config(url string) (etcd.Config, error) {
	e, err := parseEtcd(url)
	if err != nil {
		return e, err
	}
	if c.StoreUser != "" {
		password, err := os.ReadFile(c.StorePassword)
		if err != nil {
			return e, fmt.Errorf("--store-password: %w", err)
		}
		e.Username, e.Password = c.StoreUser, strings.TrimRight(string(password), "\r\n")
	}
	if c.StoreCA == "" && c.StoreCert == "" {
		return e, nil
	}
	e.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.StoreCA != "" {
		if e.TLS.RootCAs, err = readRoots("--store-ca", c.StoreCA); err != nil {
			return e, err
		}
	}
	if c.StoreCert != "" {
		if _, err := tls.LoadX509KeyPair(c.StoreCert, c.StoreKey); err != nil {
			return e, fmt.Errorf("--store-cert: %w", err)
		}
		// Read for each connection, so that a renewed certificate is used.
		e.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.StoreCert, c.StoreKey)
			return &pair, err
		}
	}
	return e, nil
}

// readRoots reads the certificates of the authorities that a flag names.
func readRoots(flag, path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s has no certificate", flag, path)
	}
	return pool, nil
}

// openStore opens the store of pushed resources, with what only its kind knows.
func openStore(ctx context.Context, c Config, svc *service.Service, log *slog.Logger) (to sources.Connections, err error) {
	if c.Store == "" {
		s, err := file.Open(c.Data, file.Options{Logger: log, OnCommit: svc.Inbound.Commit, OnLost: svc.Inbound.StoreLost})
		if err != nil {
			return to, err
		}
		svc.Metrics.MustRegister(storeMetrics(s, nil))
		if to.Store = s; c.Data == "" {
			to.DescribeStore = func(state *sources.StoreState) { state.Kind = sources.StoreInMemory }
		}
		return to, nil
	}
	e, err := c.StoreAccess.config(c.Store)
	if err != nil {
		return to, err
	}
	o := etcd.Options{Logger: log, OnCommit: svc.Inbound.Commit, OnLost: svc.Inbound.StoreLost}
	if c.Data != "" {
		if o.Copy, err = file.Open(filepath.Join(c.Data, copyDirectory), file.Options{Logger: log, BeginEmpty: true}); err != nil {
			return to, err
		}
	}
	s, err := etcd.Open(ctx, e, o)
	if err != nil {
		return to, fmt.Errorf("open store: %w", err)
	}
	svc.Metrics.MustRegister(storeMetrics(s, s.Status))
	return sources.Connections{
		Store:           s,
		DescribeStore:   func(state *sources.StoreState) { describeEtcd(state, s.Status()) },
		StoreConditions: (&storeConditions{status: s.Status, began: map[string]time.Time{}}).list,
	}, nil
}

// describeEtcd adds what is known about a store in etcd.
func describeEtcd(state *sources.StoreState, now etcd.Status) {
	state.Kind, state.Fleet, state.Unreadable = sources.StoreInEtcd, now.Fleet, len(now.Problems)
	state.Last = max(state.Index, now.Last)
	if !now.Current.IsZero() {
		behind := time.Since(now.Current).Seconds()
		state.BehindSeconds = &behind
	}
}

// storeConditions are the problems of a store in etcd, besides that it cannot be reached.
type storeConditions struct {
	status func() etcd.Status

	mu    sync.Mutex
	began map[string]time.Time // of the problems that last
}

func (s *storeConditions) list() []observe.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status()
	var out []observe.Condition
	add := func(is bool, what string, c observe.Condition) {
		if !is {
			delete(s.began, what)
			return
		}
		if s.began[what].IsZero() {
			s.began[what] = time.Now()
		}
		c.Kind, c.Since = observe.ConditionStoreFailing, s.began[what]
		out = append(out, c)
	}
	unread := observe.Condition{
		NotReady: true, Text: "there is no copy of what is stored, and it is not read from etcd yet: picks of clusters that are not known get 503",
		Remedy: "check etcd and the network between it and this host",
	}
	if empty, is := errors.AsType[*etcd.EmptyError](st.Err); is {
		unread.Text, unread.Remedy = empty.Error(), "run lbd store init with the --store of this daemon, or lbd store migrate"
	}
	add(!st.Loaded, "empty", unread)
	keys := slices.Sorted(maps.Keys(st.Problems))
	named := make([]string, 0, maxListedProblems)
	for _, key := range keys[:min(len(keys), maxListedProblems)] {
		named = append(named, key+": "+st.Problems[key].Error())
	}
	add(len(keys) > 0, "unreadable", observe.Condition{
		Text:   fmt.Sprintf("%d records in etcd cannot be read, and what they were before stays in use: %s", len(keys), strings.Join(named, "; ")),
		Remedy: "update lbd if a newer one wrote them; else push their resources again, or delete the keys",
	})
	add(len(st.Outdated) > 0, "version", observe.Condition{
		Text: "lbd needs etcd 3.5 or later, and is not tested with this one: " + strings.Join(st.Outdated, ", "), Remedy: "update etcd",
	})
	copyText := ""
	if st.CopyErr != nil {
		copyText = "the copy of the store cannot be written, a restart without etcd would use an older one: " + st.CopyErr.Error()
	}
	add(st.CopyErr != nil, "copy", observe.Condition{Text: copyText, Remedy: "check the disk of --data"})
	return out
}

var (
	storeIndexFamily = observe.Gauge("lbd_store_index",
		"Index of the last commit of the store that this daemon has applied. In a store that daemons share, it is the same at all of them, but for what is on its way.")
	storeBehindFamily = observe.Gauge("lbd_store_behind_seconds",
		"Time since the contents were last known to be all that etcd has, or since the start, at most some seconds while etcd responds. Only with --store.")
	storeUnreadableFamily = observe.Gauge("lbd_store_unreadable_records",
		"Records in etcd that are damaged or of a newer lbd: what they were before stays in use. Only with --store.")
	storeUnknownFamily = observe.Gauge("lbd_store_unknown_records",
		"Records in the store of kinds that this lbd does not know, because a newer one has put them: they are kept, and have no effect on this daemon.")
)

// storeMetrics returns the metrics of a store; status is nil for a file.
func storeMetrics(st store.Store, status func() etcd.Status) observe.Collector {
	opened := time.Now()
	return func(out chan<- prometheus.Metric) {
		stored, unknown := st.Snapshot(), 0
		for _, n := range sources.UnknownKinds(stored.All()) {
			unknown += n
		}
		out <- storeIndexFamily.Metric(float64(stored.Index()))
		out <- storeUnknownFamily.Metric(float64(unknown))
		if status == nil {
			return
		}
		now := status()
		current := now.Current
		if current.IsZero() {
			current = opened
		}
		out <- storeBehindFamily.Metric(time.Since(current).Seconds())
		out <- storeUnreadableFamily.Metric(float64(len(now.Problems)))
	}
}
