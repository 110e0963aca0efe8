package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Bounds of flags.
const (
	maxDrainDelay         = 10 * time.Minute
	maxDrainTimeout       = 10 * time.Minute
	minConnections        = 16
	maxConnections        = 1_000_000
	maxOnDemand           = 100_000 // --on-demand, --on-demand-unknown
	maxOnDemandIdle       = 24 * time.Hour
	maxChangeHistory      = 10_000
	minChangeHistoryBytes = 64 << 10
	maxChangeHistoryBytes = 1 << 30
	maxChangeHistoryAge   = 10 * 365 * 24 * time.Hour
	minHistoryBytes       = 1 << 20
	maxHistoryBytes       = 16 << 30
	maxEventLoops         = 64
	maxName               = 253 // bytes, as of a host name

	defaultMaxBulk    = 64
	defaultMaxWaiting = 10_000
)

// defaultListen is the default of --listen, equal to the tag of Config.Listen.
const defaultListen = "127.0.0.1:8080"

// Config is the configuration of the daemon, from flags, environment and file.
type Config struct {
	ConfigFile         string        `name:"config" help:"Configuration file (YAML) whose keys are flag names; the command line and the environment take precedence (default none)" env:"LBD_CONFIG" placeholder:"FILE"`
	Listen             []string      `help:"Address to listen on: host:port or unix:PATH, with options after commas (tls, mode=0660, roles=pick+read, anonymous=pick); repeatable (default ${default})" default:"127.0.0.1:8080" env:"LBD_LISTEN" placeholder:"ADDRESS[,OPTION]"`
	Tokens             string        `help:"Identity file (YAML) of the callers: tokens, client certificates and unix users, with their roles (default none: callers need no identity)" env:"LBD_TOKENS" placeholder:"FILE"`
	TLSCert            string        `name:"tls-cert" help:"Certificate chain of listeners with the option tls, in PEM (default none)" env:"LBD_TLS_CERT" placeholder:"FILE"`
	TLSKey             string        `name:"tls-key" help:"Private key of the certificate, in PEM (default none)" env:"LBD_TLS_KEY" placeholder:"FILE"`
	TLSClientCA        string        `name:"tls-client-ca" help:"Certificates of the authorities that sign client certificates, in PEM (default none: no client certificate is requested)" env:"LBD_TLS_CLIENT_CA" placeholder:"FILE"`
	Audit              string        `help:"Audit log (JSON lines): a file, which is reopened on SIGHUP, or - for standard output (default none)" env:"LBD_AUDIT" placeholder:"FILE"`
	AccessLog          string        `help:"Access log (JSON lines) of all requests: a file, which is reopened on SIGHUP, or - for standard output (default none)" env:"LBD_ACCESS_LOG" placeholder:"FILE"`
	AllowHost          []string      `help:"Accepted Host header where callers without identity have roles: NAME or *.DOMAIN, in addition to IP addresses and localhost; repeatable (default none)" env:"LBD_ALLOW_HOST" placeholder:"NAME"`
	Insecure           bool          `help:"Do not limit roles on non-loopback listeners without TLS, or for callers without identity (default false: limited to pick and metrics)" env:"LBD_INSECURE"`
	Name               string        `help:"Name of this daemon in the dashboard and in GET /v1/daemon (default the host name)" env:"LBD_NAME" placeholder:"NAME"`
	Data               string        `help:"Directory that stores pushed resources; empty stores them in memory only (default \"${default}\")" default:"${data}" env:"LBD_DATA" placeholder:"DIR"`
	Store              string        `help:"Store of pushed resources: etcd://HOST:PORT,.../PREFIX, which several daemons share (default none: a file in the data directory)" env:"LBD_STORE" placeholder:"URL"`
	StoreAccess        StoreAccess   `embed:""`
	Advertise          string        `help:"URL at which the other daemons of the store reach the API of this one: http://HOST:PORT or https://HOST:PORT (default the first TCP address to listen on, or the address from which etcd is reached if that is of all interfaces)" env:"LBD_ADVERTISE" placeholder:"URL"`
	FleetCA            string        `name:"fleet-ca" help:"Authorities that sign the certificates of the other daemons of the store, in PEM (default those of the system)" env:"LBD_FLEET_CA" placeholder:"FILE"`
	Zone               string        `help:"Zone of this daemon, for GET /v1/fleet (default none)" env:"LBD_ZONE" placeholder:"NAME"`
	Resources          string        `help:"Directory of xDS resource files (JSON, YAML, protobuf) to watch; a pushed resource takes precedence over a file (default none)" env:"LBD_RESOURCES" placeholder:"DIR"`
	LenientFiles       bool          `help:"Accept unknown fields in resource files, with a warning (default false: they make the file invalid)" env:"LBD_LENIENT_FILES"`
	MaxRemoved         *int          `help:"Maximum number of clusters that one change of the resource files may remove without a permit (default half of those in the files, at least 1)" env:"LBD_MAX_REMOVED" placeholder:"N"`
	Bootstrap          string        `help:"Bootstrap file, in gRPC's format, of the management server to follow (default $GRPC_XDS_BOOTSTRAP, a file, or $GRPC_XDS_BOOTSTRAP_CONFIG, its content)" env:"LBD_BOOTSTRAP" placeholder:"FILE"`
	Target             []string      `help:"Target to host: xds:///NAME or NAME, whose routes choose the cluster of a pick; repeatable (default none)" env:"LBD_TARGET" placeholder:"NAME"`
	OnDemand           int           `help:"Maximum number of on-demand clusters that the management server has confirmed, 1 to 100000 (default ${default})" default:"1000" env:"LBD_ON_DEMAND" placeholder:"N"`
	OnDemandUnknown    int           `help:"Maximum number of on-demand names that the management server has not confirmed, 1 to 100000 (default ${default})" default:"1000" env:"LBD_ON_DEMAND_UNKNOWN" placeholder:"N"`
	OnDemandIdle       time.Duration `help:"Idle time after which an on-demand cluster is released, 1s to 24h (default ${default})" default:"10m" env:"LBD_ON_DEMAND_IDLE" placeholder:"DURATION"`
	Connect            string        `help:"Connect mode of clusters that do not set one: ${enum} (default ${default})" enum:"tcp,tcp_hold,tls,none" default:"tcp" env:"LBD_CONNECT" placeholder:"MODE"`
	PickWait           time.Duration `help:"Default wait for picks that do not set wait, 0s to 60s (default ${default})" default:"1s" env:"LBD_PICK_WAIT" placeholder:"DURATION"`
	MaxConnections     int           `help:"Maximum number of API connections, 16 to 1000000; when it is reached, the connection that was idle longest is closed (default half of the file descriptor limit, at most 65536, and one for each 64 KiB of GOMEMLIMIT)" env:"LBD_MAX_CONNECTIONS" placeholder:"N"`
	EventLoops         *int          `help:"Number of event loops, which serve picks, the ends of leases and watches over HTTP/1.1 without TLS, 0 to 64; 0 serves them as other requests (default half of the CPUs, at least 1)" env:"LBD_EVENT_LOOPS" placeholder:"N"`
	MaxPeerConns       int           `name:"max-peer-connections" help:"Maximum number of API connections of one peer: an address, a /64 network of IPv6, or a user of a unix socket; loopback addresses have no limit (default the caller share of all connections, half)" env:"LBD_MAX_PEER_CONNECTIONS" placeholder:"N"`
	APIBytes           int64         `name:"api-bytes" help:"Maximum memory for request bodies, responses that are not yet written, leases and idempotency keys, in bytes (default half of GOMEMLIMIT, which is by default 70% of the container's memory; 1 GiB without a limit)" env:"LBD_API_BYTES" placeholder:"BYTES"`
	MaxLeases          int           `help:"Maximum number of leases (default ${default})" default:"1000000" env:"LBD_MAX_LEASES" placeholder:"N"`
	MaxLeaseShare      float64       `help:"Part of a cluster's circuit breaker that one owner may hold with leases, from 0 to 1; metadata lbd.max_lease_share of a cluster takes precedence (default 0: no limit)" env:"LBD_MAX_LEASE_SHARE" placeholder:"PART"`
	MaxRegistrations   int           `help:"Maximum number of registered endpoints, which have to be renewed, 1 to 100000 (default ${default})" default:"10000" env:"LBD_MAX_REGISTRATIONS" placeholder:"N"`
	MaxExpired         float64       `help:"Part of the endpoints of a cluster, at least 1 of them, that is removed within one ttl because they were not renewed, above 0 to 1 (default ${default})" default:"0.2" env:"LBD_MAX_EXPIRED" placeholder:"PART"`
	MaxTTL             time.Duration `name:"max-ttl" help:"Maximum ttl of a lease, 1ms to 10m (default ${default})" default:"10m" env:"LBD_MAX_TTL" placeholder:"DURATION"`
	MaxStreams         int           `help:"Maximum number of watches (default half of the API connections, at most 10000)" env:"LBD_MAX_STREAMS" placeholder:"N"`
	MaxBulk            int           `help:"Maximum number of concurrent requests that read or change many resources (default ${default})" default:"64" env:"LBD_MAX_BULK" placeholder:"N"`
	MaxWaitingPicks    int           `help:"Maximum number of picks that wait for an endpoint (default half of the API connections, at most 10000)" env:"LBD_MAX_WAITING_PICKS" placeholder:"N"`
	CallerShare        float64       `help:"Part of each of these limits that one caller may use, from 0 to 1; callers without identity on a local listener may use all (default ${default})" default:"0.5" env:"LBD_CALLER_SHARE" placeholder:"PART"`
	CallerRate         float64       `help:"Maximum number of requests per second of one caller; its entry in the identity file can set another (default 0: no limit)" env:"LBD_CALLER_RATE" placeholder:"N"`
	AllowEndpoints     []string      `help:"Network in which endpoints may be, such as 10.0.0.0/8; repeatable (default none: all networks)" env:"LBD_ALLOW_ENDPOINTS" placeholder:"CIDR"`
	DenyEndpoints      []string      `help:"Network in which endpoints may not be, or none; repeatable (default lbd and link-local and unspecified addresses: 169.254.0.0/16, fe80::/10, fd00:ec2::254, 0.0.0.0/8, ::)" env:"LBD_DENY_ENDPOINTS" placeholder:"CIDR"`
	DrainDelay         time.Duration `help:"Time after SIGTERM during which /readyz fails and new connections are still accepted, 0s to 10m (default ${default})" default:"0s" env:"LBD_DRAIN_DELAY" placeholder:"DURATION"`
	DrainTimeout       time.Duration `help:"Maximum time that requests in flight have to finish at shutdown, 0s to 10m (default ${default})" default:"10s" env:"LBD_DRAIN_TIMEOUT" placeholder:"DURATION"`
	HistoryBytes       int           `help:"Maximum memory for the history of all clusters, in bytes: 0 (no history), or 1048576 to 17179869184 (default ${default})" default:"67108864" env:"LBD_HISTORY_BYTES" placeholder:"BYTES"`
	ChangeHistory      int           `help:"Maximum number of changes of pushed resources in the history, 0 (no history) to 10000 (default ${default})" default:"1000" env:"LBD_CHANGE_HISTORY" placeholder:"N"`
	ChangeHistoryBytes int64         `help:"Maximum size of this history in the store, in bytes, 65536 to 1073741824 (default ${default})" default:"33554432" env:"LBD_CHANGE_HISTORY_BYTES" placeholder:"BYTES"`
	ChangeHistoryAge   time.Duration `help:"Maximum age of a change in this history, 1m to 87600h, or 0s: any age (default ${default})" default:"0s" env:"LBD_CHANGE_HISTORY_AGE" placeholder:"DURATION"`
	RequireIfMatch     bool          `help:"Reject pushes and deletions without If-Match or If-None-Match (default false)" env:"LBD_REQUIRE_IF_MATCH"`
	LogLevel           string        `help:"Minimum log level: ${enum} (default ${default})" enum:"debug,info,warn,error" default:"info" env:"LBD_LOG_LEVEL" placeholder:"LEVEL"`
	LogFormat          string        `help:"Log format: ${enum} (default ${default})" enum:"text,json" default:"text" env:"LBD_LOG_FORMAT" placeholder:"FORMAT"`
}

// Validate checks what kong does not check. kong calls it.
func (c *Config) Validate() error {
	if err := cmp.Or(
		within("pick-wait", c.PickWait, 0, picks.MaxWait),
		within("drain-delay", c.DrainDelay, 0, maxDrainDelay),
		within("drain-timeout", c.DrainTimeout, 0, maxDrainTimeout),
		within("on-demand", c.OnDemand, 1, maxOnDemand),
		within("on-demand-unknown", c.OnDemandUnknown, 1, maxOnDemand),
		within("on-demand-idle", c.OnDemandIdle, time.Second, maxOnDemandIdle),
		within("event-loops", c.eventLoops(), 0, maxEventLoops),
		within("change-history", c.ChangeHistory, 0, maxChangeHistory),
		within("change-history-bytes", c.ChangeHistoryBytes, minChangeHistoryBytes, maxChangeHistoryBytes),
	); err != nil {
		return err
	}
	if c.MaxConnections != 0 && (c.MaxConnections < minConnections || c.MaxConnections > maxConnections) {
		return fmt.Errorf("--max-connections must be from %d to %d, or 0 for the default, not %d", minConnections, maxConnections, c.MaxConnections)
	}
	if c.HistoryBytes != 0 && (c.HistoryBytes < minHistoryBytes || c.HistoryBytes > maxHistoryBytes) {
		return fmt.Errorf("--history-bytes must be 0 or from %d to %d", minHistoryBytes, maxHistoryBytes)
	}
	if c.ChangeHistoryAge != 0 {
		if err := within("change-history-age", c.ChangeHistoryAge, time.Minute, maxChangeHistoryAge); err != nil {
			return err
		}
	}
	if len(c.Name) > maxName || !utf8.ValidString(c.Name) {
		return fmt.Errorf("--name must be at most %d bytes of UTF-8", maxName)
	}
	if c.MaxRemoved != nil && *c.MaxRemoved < 0 {
		return fmt.Errorf("--max-removed must not be negative: %d", *c.MaxRemoved)
	}
	for i, name := range c.Target {
		full, err := ledger.TargetName(name)
		if err != nil {
			return fmt.Errorf("--target: %w", err)
		}
		c.Target[i] = full
	}
	return cmp.Or(c.validateLimits(), c.validateSecurity(), c.validateStore(), c.validateFleet())
}

func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s must be from %v to %v, not %v", flag, least, most, value)
	}
	return nil
}

func (c *Config) connectMode() resource.ConnectMode { return resource.ConnectMode(c.Connect) }

// daemonName returns --name, or the host's name.
func (c *Config) daemonName() string {
	if c.Name != "" {
		return c.Name
	}
	host, err := os.Hostname()
	if err != nil {
		return "lbd"
	}
	return host
}

// eventLoops returns --event-loops: by default half of the CPUs, since updates, leases and other
// requests need CPUs, too.
func (c *Config) eventLoops() int {
	if c.EventLoops != nil {
		return *c.EventLoops
	}
	return min(max(1, overload.CPUs()/2), maxEventLoops)
}

// timelineBytes returns --history-bytes as an option of the service, where -1 is no timeline.
func (c *Config) timelineBytes() int {
	if c.HistoryBytes == 0 {
		return -1
	}
	return c.HistoryBytes
}

func (c *Config) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // kong rejects other levels
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
