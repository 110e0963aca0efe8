package bootstrap

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

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
