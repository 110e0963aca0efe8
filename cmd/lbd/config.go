package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxDrainTimeout bounds --drain-timeout.
const maxDrainTimeout = 10 * time.Minute

// maxDrainDelay bounds --drain-delay; minConnections and maxConnections bound
// --max-connections.
const (
	maxDrainDelay  = 10 * time.Minute
	minConnections = 16
	maxConnections = 1_000_000
)

// maxOnDemand and maxOnDemandIdle bound --on-demand, --on-demand-unknown and
// --on-demand-idle.
const (
	maxOnDemand     = 100_000
	maxOnDemandIdle = 24 * time.Hour
)

// minHistoryBytes and maxHistoryBytes bound --history-bytes.
const (
	minHistoryBytes = 1 << 20
	maxHistoryBytes = 16 << 30
)

// maxName is the maximum length of --name, in bytes: that of a host's name.
const maxName = 253

// defaultListen is --listen where nobody says otherwise, as the tag of
// Config.Listen has it.
const defaultListen = "127.0.0.1:8080"

// Config is the daemon's configuration, flags and environment joined.
type Config struct {
	ConfigFile      string        `name:"config" help:"Configuration file (YAML): flags by their names. The command line comes first, then the environment." env:"LBD_CONFIG" placeholder:"FILE"`
	Listen          []string      `help:"Where to listen: host:port or unix:PATH. Repeatable." default:"127.0.0.1:8080" env:"LBD_LISTEN" placeholder:"ADDRESS"`
	Name            string        `help:"Name of this daemon in the dashboard and in GET /v1/daemon (default: the host's name)." env:"LBD_NAME" placeholder:"NAME"`
	Data            string        `help:"Data directory, where pushed resources are kept. Empty keeps them in memory only." default:"${data}" env:"LBD_DATA" placeholder:"DIR"`
	Resources       string        `help:"Directory of xDS resource files (JSON, YAML, protobuf), watched. What is pushed comes before them." env:"LBD_RESOURCES" placeholder:"DIR"`
	LenientFiles    bool          `help:"Accept unknown fields of resource files with a warning. By default, they make a file bad." env:"LBD_LENIENT_FILES"`
	MaxRemoved      *int          `help:"Maximum number of clusters that one change of the resource files may remove without the operator's permission (default: half of those that the files provide, at least 1)." env:"LBD_MAX_REMOVED" placeholder:"N"`
	Bootstrap       string        `help:"Bootstrap of the management server to follow: a file in gRPC's format. Else GRPC_XDS_BOOTSTRAP names one, or GRPC_XDS_BOOTSTRAP_CONFIG holds it." env:"LBD_BOOTSTRAP" placeholder:"FILE"`
	Target          []string      `help:"Target to host, xds:///NAME or NAME: a Listener finds its routes, and these the cluster of a pick. Repeatable." env:"LBD_TARGET" placeholder:"NAME"`
	OnDemand        int           `help:"Limit of clusters that the management server has and is asked for because picks name them (1 to 100000)." default:"1000" env:"LBD_ON_DEMAND"`
	OnDemandUnknown int           `help:"Limit of names that picks name and the management server has not confirmed (1 to 100000)." default:"1000" env:"LBD_ON_DEMAND_UNKNOWN"`
	OnDemandIdle    time.Duration `help:"How long such a cluster stays that nobody picks from (1s to 24h)." default:"10m" env:"LBD_ON_DEMAND_IDLE"`
	Connect         string        `help:"How to find out whether an endpoint can be connected to, where its cluster does not say: ${enum}." enum:"tcp,tcp_hold,tls,none" default:"tcp" env:"LBD_CONNECT"`
	PickWait        time.Duration `help:"How long a pick may queue that does not say (0 to 60s)." default:"1s" env:"LBD_PICK_WAIT"`
	MaxConnections  int           `help:"Connections of callers at a time: beyond, the one that has been idle longest is closed (default: half of the limit on descriptors, 65536 at most)." env:"LBD_MAX_CONNECTIONS"`
	DrainDelay      time.Duration `help:"Time at the end in which /readyz fails and connections are still accepted (0 to 10m)." default:"0s" env:"LBD_DRAIN_DELAY"`
	DrainTimeout    time.Duration `help:"How long requests in flight may take to finish at the end (0 to 10m)." default:"10s" env:"LBD_DRAIN_TIMEOUT"`
	HistoryBytes    int           `help:"Memory for the history of all clusters, in bytes: 0 for none, or 1048576 (1 MiB) to 17179869184 (16 GiB)." default:"67108864" env:"LBD_HISTORY_BYTES" placeholder:"BYTES"`
	RequireIfMatch  bool          `help:"Refuse pushes that do not say, by If-Match or If-None-Match, what they replace." env:"LBD_REQUIRE_IF_MATCH"`
	LogLevel        string        `help:"What to log at least: ${enum}." enum:"debug,info,warn,error" default:"info" env:"LBD_LOG_LEVEL"`
	LogFormat       string        `help:"How to log: ${enum}." enum:"text,json" default:"text" env:"LBD_LOG_FORMAT"`
}

// Validate checks what kong cannot. kong calls it.
func (c *Config) Validate() error {
	if c.PickWait < 0 || c.PickWait > service.MaxWait {
		return fmt.Errorf("--pick-wait is %v, and should be between 0s and %v", c.PickWait, service.MaxWait)
	}
	if c.DrainDelay < 0 || c.DrainDelay > maxDrainDelay {
		return fmt.Errorf("--drain-delay is %v, and should be between 0s and %v", c.DrainDelay, maxDrainDelay)
	}
	if c.MaxConnections != 0 && (c.MaxConnections < minConnections || c.MaxConnections > maxConnections) {
		return fmt.Errorf("--max-connections is %d, and should be between %d and %d, or 0 for the default", c.MaxConnections, minConnections, maxConnections)
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > maxDrainTimeout {
		return fmt.Errorf("--drain-timeout is %v, and should be between 0s and %v", c.DrainTimeout, maxDrainTimeout)
	}
	if c.OnDemand < 1 || c.OnDemand > maxOnDemand {
		return fmt.Errorf("--on-demand is %d, and should be between 1 and %d", c.OnDemand, maxOnDemand)
	}
	if c.OnDemandUnknown < 1 || c.OnDemandUnknown > maxOnDemand {
		return fmt.Errorf("--on-demand-unknown is %d, and should be between 1 and %d", c.OnDemandUnknown, maxOnDemand)
	}
	if c.OnDemandIdle < time.Second || c.OnDemandIdle > maxOnDemandIdle {
		return fmt.Errorf("--on-demand-idle is %v, and should be between 1s and %v", c.OnDemandIdle, maxOnDemandIdle)
	}
	if c.HistoryBytes != 0 && (c.HistoryBytes < minHistoryBytes || c.HistoryBytes > maxHistoryBytes) {
		return fmt.Errorf("--history-bytes must be 0 or from %d to %d", minHistoryBytes, maxHistoryBytes)
	}
	if len(c.Name) > maxName || !utf8.ValidString(c.Name) {
		return fmt.Errorf("--name must be at most %d bytes of UTF-8", maxName)
	}
	if c.MaxRemoved != nil && *c.MaxRemoved < 0 {
		return fmt.Errorf("--max-removed is %d, and should not be negative", *c.MaxRemoved)
	}
	for i, name := range c.Target {
		full, err := service.TargetName(name)
		if err != nil {
			return fmt.Errorf("--target: %w", err)
		}
		c.Target[i] = full
	}
	for _, l := range c.Listen {
		if err := validAddress(l); err != nil {
			return fmt.Errorf("--listen %q: %w", l, err)
		}
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

// historyBytes is --history-bytes as the service takes it.
func (c *Config) historyBytes() int {
	if c.HistoryBytes == 0 {
		return -1
	}
	return c.HistoryBytes
}

// logger writes to standard error.
func (c *Config) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(c.LogLevel))); err != nil {
		level = slog.LevelInfo // kong lets no other through
	}
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
