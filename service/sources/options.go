package sources

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options configure New.
type Options struct {
	Logger *slog.Logger
	Ledger *ledger.Ledger
	Events *observe.Events
	// BreakerEased is called with each cluster whose circuit breaker may have a new
	// limit.
	BreakerEased func(*ledger.Cluster)
	// Draining ends when the daemon begins to shut down.
	Draining context.Context
	Registry *prometheus.Registry
	Overload *overload.Monitor

	// The others are as in the options of package service.

	Lookup                    func(ctx context.Context, host string) ([]string, error)
	ConnectMode               resource.ConnectMode
	Bootstrap                 *bootstrap.Config
	Targets                   []string
	RequireIfMatch            bool
	MaxRemoved                *int
	OnDemand, OnDemandUnknown int
	OnDemandIdle              time.Duration
}

// decoding returns the options with which resources that people write are decoded.
func (o *Options) decoding(f Format) decode.Options {
	return decode.Options{Origin: decode.ByHand, Format: f, Policies: lb.PolicyConfig, Certificates: o.Bootstrap.Instances()}
}

// guard returns the guard of changes that people make.
func (o *Options) guard() admission.Guard {
	return admission.Guard{Server: o.Bootstrap != nil, TLS: o.ConnectMode == resource.ConnectTLS}
}

// Format is how a resource is written.
type Format = decode.Format

// The formats of resources.
const (
	JSON     = decode.FormatJSON
	YAML     = decode.FormatYAML
	Protobuf = decode.FormatProtobuf
)

// Kind is the type of one of the two resources of a cluster.
type Kind = resource.Type

// The kinds.
const (
	Endpoints Kind = resource.TypeAssignment
	Config    Kind = resource.TypeCluster
)
