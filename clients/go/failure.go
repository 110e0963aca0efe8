package lbdclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// shortages are errors of this machine: no endpoint is to blame.
var shortages = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM,
}

// messages begin the errors of net/http and HTTP/2 about a connection that have no type.
var messages = []string{
	"net/http: HTTP/1.x transport connection broken",
	"http: server closed idle connection",
	"http2: ", "stream error: ", "connection error: ",
	"tls: ", "remote error: tls",
}

// isNotSent reports whether an error of a RoundTripper says that there was no connection: nothing of the request was
// sent.
func isNotSent(err error) bool {
	var (
		network     *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		authority   x509.UnknownAuthorityError
	)
	return errors.As(err, &network) && network.Op == "dial" || errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &authority) || err.Error() == "net/http: TLS handshake timeout"
}

// isConnection reports whether an error of a RoundTripper is one of the connection to the endpoint. Others are about the
// request.
func isConnection(err error) bool {
	for _, shortage := range shortages {
		if errors.Is(err, shortage) {
			return false
		}
	}
	var (
		network net.Error
		alert   tls.AlertError
	)
	if errors.As(err, &network) || errors.As(err, &alert) || isNotSent(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	for _, message := range messages {
		if strings.HasPrefix(err.Error(), message) {
			return true
		}
	}
	return false
}
