package bootstrap

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// MaxMessageBytes is the largest message that a management server may send. All
// resources of a type that are subscribed to come in one: grpc's default of 4 MiB
// is full with about 60,000 endpoints.
const MaxMessageBytes = 256 << 20

// What all of gRPC's xDS clients do to notice a connection that is dead.
var keepAlive = keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}

// Server is a management server. Two that are equal have an equal [Server.Key].
type Server struct {
	// URI is what grpc.NewClient takes: host:port, or dns:, unix: and the like.
	URI string
	// Credentials is the type of the channel credentials that were chosen, for
	// people to read: insecure or tls.
	Credentials string
	// FailOnDataErrors drops a cached resource when the server deletes it, sends an
	// invalid version, or reports NOT_FOUND or PERMISSION_DENIED for it. By default,
	// the cached resource stays in use (server feature fail_on_data_errors, gRFC A88).
	FailOnDataErrors bool
	// ResourceTimerIsTransientError gives the server 30 s instead of 15 s to send a
	// resource, and a resource that it has not sent by then is not taken for one that
	// does not exist (server feature resource_timer_is_transient_error, gRFC A88).
	ResourceTimerIsTransientError bool
	// TrustedXDSServer lets the server say what else only the bootstrap may (server feature
	// trusted_xds_server, gRFC A81).
	TrustedXDSServer bool

	transport credentials.TransportCredentials
	calls     []credentials.PerRPCCredentials
	key       string
}

// Key is equal for equal servers: one connection, and one stream, for each.
func (s Server) Key() string { return s.key }

// String returns the URI.
func (s Server) String() string { return s.URI }

// Dial returns a channel to the server, which connects when it is first used. Who
// calls closes it. Options add to those that the bootstrap asks for.
func (s Server) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(s.transport),
		grpc.WithKeepaliveParams(keepAlive),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes)),
	}
	for _, c := range s.calls {
		all = append(all, grpc.WithPerRPCCredentials(c))
	}
	cc, err := grpc.NewClient(s.URI, append(all, options...)...)
	if err != nil {
		return nil, fmt.Errorf("management server %q: %w", s.URI, err)
	}
	return cc, nil
}
