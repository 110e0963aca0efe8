package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"time"
)

// MaxTokenBytes is the maximum length of a bearer token.
const MaxTokenBytes = 512

// The reasons why credentials identify no caller.
var (
	ErrUnknownToken       = errors.New("the token is unknown")
	ErrUnknownCertificate = errors.New("no identity matches the client certificate")
	ErrNoSAN              = errors.New("the client certificate has no SAN that is a DNS name or a URI: its subject does not identify a caller")
)

// ExpiredError says that credentials identify a caller whose identity has ended.
type ExpiredError struct {
	Name string
	At   time.Time
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("the identity %s expired at %s", e.Name, e.At.UTC().Format(time.RFC3339))
}

// Identities are the callers of one version of an identity file. They are
// immutable and may be used from any goroutine. A nil *Identities has none.
type Identities struct {
	tokens       map[[sha256.Size]byte]token // by their hashes
	certificates []certificate
	peers        []peer
	callers      map[string]*entry // by name
}

// token is a caller that shows a token with a hash.
type token struct {
	*entry

	hash [sha256.Size]byte
}

// certificate is a caller that shows a client certificate with a SAN of the form
// of a pattern.
type certificate struct {
	*entry

	kind, pattern string // kind is dns or uri
}

// peer is a caller on a unix socket. A nil uid or gid means any.
type peer struct {
	*entry

	uid, gid *uint32
}

// Len returns the number of callers.
func (i *Identities) Len() int {
	if i == nil {
		return 0
	}
	return len(i.callers)
}

// Token returns the caller of a bearer token.
//
// It is found by its SHA-256. The time of the lookup depends on the hash only, of which a caller cannot
// choose the first bytes without as many attempts, and from which nothing follows about a token of 256
// random bits. The comparison of the whole hash takes constant time.
func (i *Identities) Token(text string, now time.Time) (*Caller, error) {
	if i == nil || len(text) > MaxTokenBytes {
		return nil, ErrUnknownToken
	}
	hash := sha256.Sum256([]byte(text))
	t, ok := i.tokens[hash]
	if !ok || subtle.ConstantTimeCompare(t.hash[:], hash[:]) != 1 {
		return nil, ErrUnknownToken
	}
	return current(t.caller, now)
}

// Certificate returns the caller of a client certificate, which the TLS
// handshake has verified: that of the first entry with a matching SAN.
func (i *Identities) Certificate(cert *x509.Certificate, now time.Time) (*Caller, error) {
	if i == nil {
		return nil, ErrUnknownCertificate
	}
	for _, entry := range i.certificates {
		if entry.matches(cert) {
			if now.After(cert.NotAfter) { // it was valid when the connection began
				return nil, &ExpiredError{Name: entry.caller.Name, At: cert.NotAfter}
			}
			return current(entry.caller, now)
		}
	}
	if len(cert.DNSNames) == 0 && len(cert.URIs) == 0 {
		return nil, ErrNoSAN
	}
	return nil, ErrUnknownCertificate
}

func (c certificate) matches(cert *x509.Certificate) bool {
	if c.kind == "dns" {
		return slices.ContainsFunc(cert.DNSNames, func(name string) bool { return match(c.pattern, name) })
	}
	return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return match(c.pattern, uri.String()) })
}

// Peer returns the caller of a process on the other end of a unix socket: that of
// the first matching entry, or nil if there is none.
func (i *Identities) Peer(uid, gid uint32, now time.Time) (*Caller, error) {
	if i == nil {
		return nil, nil
	}
	for _, entry := range i.peers {
		if (entry.uid == nil || *entry.uid == uid) && (entry.gid == nil || *entry.gid == gid) {
			return current(entry.caller, now)
		}
	}
	return nil, nil
}

func current(c *Caller, now time.Time) (*Caller, error) {
	if !c.Expires.IsZero() && !now.Before(c.Expires) {
		return nil, &ExpiredError{Name: c.Name, At: c.Expires}
	}
	return c, nil
}

// replace makes i the successor of old. A caller whose entry is the same stays
// the same *Caller; the others of old are revoked.
func (i *Identities) replace(old *Identities) {
	if old == nil {
		return
	}
	for name, e := range old.callers {
		if successor, ok := i.callers[name]; ok && reflect.DeepEqual(successor.source, e.source) && reflect.DeepEqual(successor.quota, e.quota) {
			successor.caller = e.caller
		} else {
			close(e.caller.revoked)
		}
	}
}
