package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

// options are the flags. Each is an environment variable, too.
type options struct {
	listen, maps, hosts, clusters list
	admin                         string
	socketMode                    os.FileMode
	tlsCert, tlsKey               string
	forwarded                     string
	showAddresses                 bool

	client lbdclient.Config

	timeout, stallTimeout, headerTimeout, idleTimeout, tunnelTimeout time.Duration
	pingInterval                                                     time.Duration
	drainDelay, drainTimeout                                         time.Duration
	maxConnections, maxRequests, maxTunnels                          int64
	maxHeader                                                        int

	logLevel, logFormat string
	version             bool
}

// list is a flag that can be repeated.
type list []string

// String returns the values, separated by commas.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds a value. Names of clusters may have commas.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// usageError is about a flag.
type usageError struct{ error }

// define declares the flags.
func (o *options) define(f *flag.FlagSet) {
	f.Var(&o.listen, "listen", "`ADDRESS` of the forward proxy: HOST:PORT, :PORT on loopback, unix:PATH, or none; repeatable (default 127.0.0.1:8088)")
	f.Var(&o.maps, "map", "`ADDRESS=CLUSTER` of a reverse proxy, such as :8081=orders; h2c://CLUSTER or https://CLUSTER for endpoints that speak it; repeatable")
	f.Var(&o.hosts, "host", "`HOST=CLUSTER`: another host that the forward proxy serves, besides CLUSTER.lbd; repeatable")
	f.Var(&o.clusters, "cluster", "`PATTERN` of clusters that callers may reach, such as shop-*; each * stands for any characters; repeatable (default all)")
	f.StringVar(&o.admin, "admin", "127.0.0.1:8089", "`ADDRESS` of /metrics and /healthz, or none")
	o.socketMode = 0o660
	f.Func("socket-mode", "`MODE` of unix sockets (default 0660)", func(text string) error {
		mode, err := strconv.ParseUint(text, 8, 9)
		o.socketMode = os.FileMode(mode)
		return err
	})
	f.StringVar(&o.tlsCert, "tls-cert", "", "`FILE` with the certificate chain of the listeners of callers, in PEM (default: no TLS)")
	f.StringVar(&o.tlsKey, "tls-key", "", "`FILE` with its private key")
	f.StringVar(&o.forwarded, "forwarded", "replace", "X-Forwarded-For, -Host and -Proto of callers: `replace`, append, or keep")

	f.BoolVar(&o.showAddresses, "show-addresses", false, "show callers the addresses of endpoints and of lbd, in the details of errors")

	f.StringVar(&o.client.Address, "lbd", "", "`ADDRESS` of lbd: unix:PATH, http://HOST:PORT or https://HOST:PORT (default $LBD, else that of an lbd on this machine)")
	f.Func("mode", "`MODE` of the picks: batch, pick or lease (default batch)", func(mode string) error {
		o.client.Mode = lbdclient.Mode(mode)
		return nil
	})
	f.StringVar(&o.client.TokenFile, "token-file", "", "`FILE` with the token for lbd (default $LBD_TOKEN, $LBD_TOKEN_FILE)")
	f.StringVar(&o.client.CA, "ca", "", "`FILE` with the certificates that may sign that of lbd, in PEM (default $LBD_CA, else those of the system)")
	f.StringVar(&o.client.Fallback, "fallback", "", "`HOST:PORT` for requests to any cluster while lbd is away for longer than --stale-for")
	f.DurationVar(&o.client.StaleFor, "stale-for", time.Minute, "time for which the last picks are used while lbd is away")
	f.DurationVar(&o.client.MaxAge, "max-age", 10*time.Second, "age at which picks are replaced at the latest")
	f.DurationVar(&o.client.ConnectTimeout, "connect-timeout", 5*time.Second, "time to connect to an endpoint, at most")
	f.IntVar(&o.client.Retries, "retries", 2, "retries of a request that was sent, at most")
	f.Float64Var(&o.client.MaxTokens, "max-tokens", 100, "budget of such retries of a cluster")
	f.DurationVar(&o.client.TTL, "ttl", 30*time.Second, "ttl of leases")
	f.DurationVar(&o.client.ReportInterval, "report-interval", 5*time.Second, "time between two reports to lbd")

	f.DurationVar(&o.timeout, "timeout", time.Minute, "time until an endpoint has answered, after the request was sent; 0 for none")
	f.DurationVar(&o.stallTimeout, "stall-timeout", time.Minute, "time for which a caller may neither send nor read")
	f.DurationVar(&o.headerTimeout, "header-timeout", 10*time.Second, "time for the headers of a request")
	f.DurationVar(&o.idleTimeout, "idle-timeout", 2*time.Minute, "time for which connections of callers stay open without a request")
	f.DurationVar(&o.tunnelTimeout, "tunnel-timeout", time.Hour, "time for which tunnels and WebSockets stay open without traffic")
	f.DurationVar(&o.pingInterval, "ping-interval", 5*time.Minute, "time without a frame after which an HTTP/2 connection gets a ping, which it has 15 s to answer; 0 for never. gRPC servers end connections with more pings than one in 5m")
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "time after SIGTERM during which /healthz fails and new connections are accepted")
	f.DurationVar(&o.drainTimeout, "drain-timeout", 10*time.Second, "time that requests and tunnels have to finish after that")
	f.Int64Var(&o.maxConnections, "max-connections", 10_000, "connections of callers, without tunnels")
	f.Int64Var(&o.maxRequests, "max-requests", 10_000, "requests in flight")
	f.Int64Var(&o.maxTunnels, "max-tunnels", 10_000, "tunnels and WebSockets")
	f.IntVar(&o.maxHeader, "max-header-bytes", 64<<10, "bytes of the headers of a request")

	f.StringVar(&o.logLevel, "log-level", "info", "debug, which logs each request, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.BoolVar(&o.version, "version", false, "print the version")
}

// variable returns the environment variable of a flag.
func variable(name string) string {
	return "LBD_PROXY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// ofService matches the variables that Kubernetes sets for a Service whose name begins with lbd-proxy.
var ofService = regexp.MustCompile(`^LBD_PROXY_(\w+_)?(SERVICE_(HOST|PORT)|PORT(_\d+_|=(tcp|udp|sctp)://))`)

// warnOfVariables logs unknown variables, without their values.
func warnOfVariables(environ []string, log *slog.Logger) {
	known := flag.NewFlagSet("", flag.ContinueOnError)
	new(options).define(known)
	for _, text := range environ {
		name, _, _ := strings.Cut(text, "=")
		unknown := strings.HasPrefix(name, "LBD_PROXY_") && !ofService.MatchString(text)
		known.VisitAll(func(one *flag.Flag) { unknown = unknown && name != variable(one.Name) })
		if unknown {
			log.Warn("unknown environment variable, ignored", "variable", name)
		}
	}
}

// parse reads the flags and the environment. The command line takes precedence.
func (o *options) parse(args []string, out io.Writer) error {
	var message bytes.Buffer
	f := flag.NewFlagSet("lbd-proxy", flag.ContinueOnError)
	f.SetOutput(&message)
	f.Usage = func() {}
	o.define(f)
	if err := f.Parse(args); err == flag.ErrHelp { //nolint:errorlint // flag returns it as it is
		help(f, out)
		return err
	} else if err != nil {
		return usageError{err}
	}
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	var err error
	f.VisitAll(func(one *flag.Flag) {
		if value := os.Getenv(variable(one.Name)); value != "" && !given[one.Name] && one.Name != "version" && err == nil {
			values := []string{value}
			if _, repeats := one.Value.(*list); repeats {
				values = strings.Split(value, ",")
			}
			for _, value := range values {
				if err = f.Set(one.Name, strings.TrimSpace(value)); err != nil {
					err = usageError{fmt.Errorf("%s: %w", variable(one.Name), err)}
					return
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.check(f.Args())
}

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return usageError{fmt.Errorf("unexpected argument %q", rest[0])}
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return usageError{fmt.Errorf("set both --tls-cert and --tls-key, or neither")}
	case o.forwarded != "replace" && o.forwarded != "append" && o.forwarded != "keep":
		return usageError{fmt.Errorf("--forwarded: %q is not replace, append or keep", o.forwarded)}
	case o.logFormat != "text" && o.logFormat != "json":
		return usageError{fmt.Errorf("--log-format: %q is not text or json", o.logFormat)}
	case min(o.timeout, o.pingInterval, o.drainDelay, o.drainTimeout) < 0:
		return usageError{fmt.Errorf("--timeout, --ping-interval, --drain-delay and --drain-timeout must not be negative")}
	case min(o.stallTimeout, o.headerTimeout, o.idleTimeout, o.tunnelTimeout) <= 0:
		return usageError{fmt.Errorf("--stall-timeout, --header-timeout, --idle-timeout and --tunnel-timeout must be positive")}
	case min(o.maxConnections, o.maxRequests, o.maxTunnels, int64(o.maxHeader)) <= 0:
		return usageError{fmt.Errorf("--max-connections, --max-requests, --max-tunnels and --max-header-bytes must be positive")}
	}
	if len(o.clusters) == 0 {
		o.clusters = list{"*"}
	}
	if len(o.listen) == 0 {
		o.listen = list{"127.0.0.1:8088"}
	}
	if o.client.StaleFor == 0 {
		o.client.StaleFor = -1 // not at all
	}
	if o.client.Retries == 0 {
		o.client.Retries = -1 // none
	}
	return nil
}

func help(f *flag.FlagSet, out io.Writer) {
	fmt.Fprint(out, `lbd-proxy sends HTTP requests to the endpoints that lbd picks.

	lbd-proxy &
	http_proxy=http://localhost:8088 curl http://orders.lbd/items/7

	lbd-proxy --map :8081=orders &
	curl http://localhost:8081/items/7

Each flag is also an environment variable, such as LBD_PROXY_LISTEN.

`)
	f.VisitAll(func(one *flag.Flag) {
		value, usage := flag.UnquoteUsage(one)
		if one.DefValue != "" && one.DefValue != "false" && !strings.Contains(usage, "(default") {
			value := strings.ReplaceAll(strings.ReplaceAll(one.DefValue, "m0s", "m"), "h0m", "h")
			usage += " (default " + value + ")"
		}
		fmt.Fprintf(out, "  --%s %s\n        %s\n", one.Name, value, usage)
	})
}

// route is where the requests of a listener go.
type route struct {
	cluster string // "" for a forward proxy, whose requests name it
	scheme  string // of endpoints: http, h2c or https
	host    string // that the client knows as that of the cluster
}

// mapped reads a --map. Clusters whose names cannot be hosts get another host, in hosts.
func mapped(text string, hosts map[string]lbdclient.Host) (address string, r route, err error) {
	address, cluster, ok := strings.Cut(text, "=")
	r = route{scheme: "http", cluster: cluster}
	for _, scheme := range []string{"http", "h2c", "https"} {
		if name, found := strings.CutPrefix(cluster, scheme+"://"); found {
			r.scheme, r.cluster = scheme, name
		}
	}
	if !ok || address == "" || r.cluster == "" {
		return "", r, fmt.Errorf("--map: %q is not ADDRESS=CLUSTER", text)
	}
	r.host = r.cluster + ".lbd"
	if parsed, err := url.Parse("http://" + r.host); err != nil || parsed.Host != r.host || parsed.Port() != "" || strings.ToLower(r.host) != r.host {
		r.host = fmt.Sprintf("map-%d.invalid", len(hosts))
		hosts[r.host] = lbdclient.Host{Cluster: r.cluster}
	}
	return address, r, nil
}

// hostMap reads all --host.
func (o *options) hostMap() (map[string]lbdclient.Host, error) {
	hosts := map[string]lbdclient.Host{}
	for _, text := range o.hosts {
		host, cluster, ok := strings.Cut(text, "=")
		if !ok || host == "" || cluster == "" || strings.ContainsAny(host, ":/") {
			return nil, fmt.Errorf("--host: %q is not HOST=CLUSTER", text)
		}
		hosts[strings.ToLower(host)] = lbdclient.Host{Cluster: cluster}
	}
	return hosts, nil
}

// clusterPattern matches the clusters of all --cluster. Each * stands for any characters, as in the patterns of lbd.
func (o *options) clusterPattern() (*regexp.Regexp, error) {
	var patterns []string
	for _, pattern := range o.clusters {
		patterns = append(patterns, strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*"))
	}
	all, err := regexp.Compile("^(?s:" + strings.Join(patterns, "|") + ")$")
	if err != nil {
		err = fmt.Errorf("--cluster: %w", err)
	}
	return all, err
}

// listen opens a listener. A socket file that a killed process left behind is replaced.
func listen(address string, mode os.FileMode) (net.Listener, error) {
	if file, ok := strings.CutPrefix(address, "unix:"); ok {
		if conn, err := net.Dial("unix", file); err == nil { //nolint:noctx // it does not wait
			_ = conn.Close()
			return nil, fmt.Errorf("%s is in use", address)
		} else if info, statErr := os.Lstat(file); statErr == nil && info.Mode().Type() == os.ModeSocket {
			_ = os.Remove(file) // Listen says why, if this fails
		}
		listener, err := net.Listen("unix", file) //nolint:noctx // it does not wait
		if err == nil {
			err = os.Chmod(file, mode)
		}
		return listener, err
	}
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	return net.Listen("tcp", address) //nolint:noctx // it does not wait
}
