package bootstrap

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// MaxMessageBytes is the maximum size of a message of a management server. One message has
// all subscribed resources of a type: grpc's default of 4 MiB limits them to about 60,000
// endpoints.
const MaxMessageBytes = 256 << 20

// keepAlive is that of gRPC's xDS clients.
var keepAlive = keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}

// Server is a management server. Equal servers have an equal [Server.Key].
type Server struct {
	// URI is a target of grpc.NewClient, such as host:port or unix:///PATH.
	URI string
	// Credentials is the type of the channel credentials: insecure or tls.
	Credentials string
	// FailOnDataErrors drops a cached resource when the server deletes it, sends an
	// invalid version, or reports NOT_FOUND or PERMISSION_DENIED for it. By default,
	// the cached resource stays in use (server feature fail_on_data_errors, gRFC A88).
	FailOnDataErrors bool
	// ResourceTimerIsTransientError extends the timeout of resources from 15 s to 30 s. A
	// resource that was not sent in time may exist (server feature
	// resource_timer_is_transient_error, gRFC A88).
	ResourceTimerIsTransientError bool
	// TrustedXDSServer allows the server to configure what otherwise only the bootstrap
	// configures (server feature trusted_xds_server, gRFC A81).
	TrustedXDSServer bool

	transport credentials.TransportCredentials
	calls     []credentials.PerRPCCredentials
	key       string
}

// Key identifies a server. Servers with an equal key share a connection and a stream.
func (s Server) Key() string { return s.key }

// String returns the URI.
func (s Server) String() string { return s.URI }

// Dial returns a channel to the server, which connects at the first call. The caller closes
// it. Options add to those of the bootstrap.
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

// reloading are TLS credentials that get the certificates for each handshake (gRFC A65).
type reloading struct {
	credentials.TransportCredentials // without certificates

	provider *CertificateProvider // nil: no identity, system roots
}

func (r reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.provider != nil {
		var err error
		if config.Certificates, config.RootCAs, err = r.provider.Certificates(); err != nil {
			return nil, nil, err
		}
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (r reloading) Clone() credentials.TransportCredentials { return r }
