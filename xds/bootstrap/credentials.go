package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

var errClientOnly = errors.New("credentials of the bootstrap are for clients only")

// reloading are TLS credentials that get the certificates for each handshake (gRFC A65).
type reloading struct {
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

func (r reloading) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errClientOnly
}

func (r reloading) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (r reloading) Clone() credentials.TransportCredentials { return r }

func (r reloading) OverrideServerName(string) error {
	return errors.New("the server name cannot be overridden")
}
