package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
)

// Callers finds out who makes a request. A nil *Callers knows no identities.
type Callers struct {
	// Identities returns the callers that are known now; nil if there are none.
	Identities func() *access.Identities
	// Hosts are allowed on listeners that check the host.
	Hosts *Hosts
}

// A Listener is a listener that is served.
type Listener struct {
	net.Listener
	Spec
	Policy
	// Inherited says that another process has created the socket.
	Inherited bool
}

// The codes of the errors of this package.
const (
	Unauthenticated    fault.Code = "unauthenticated"
	PermissionDenied   fault.Code = "permission_denied"
	MisdirectedRequest fault.Code = "misdirected_request"
)

type (
	listenerKey struct{}
	peerKey     struct{}
)

// BaseContext is that of an http.Server whose listeners are each a *Listener.
func BaseContext(l net.Listener) context.Context {
	return context.WithValue(context.Background(), listenerKey{}, l)
}

// NameOf returns the address of the listener of a request in the form of --listen; empty if it came
// through none.
func NameOf(r *http.Request) string {
	l, ok := r.Context().Value(listenerKey{}).(*Listener)
	switch {
	case !ok:
		return ""
	case l.IsUnix():
		return l.Address
	default:
		return l.Addr().String()
	}
}

// ConnContext notes who is on the other end of a connection. It is for http.Server.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	for {
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = wrapper.NetConn()
	}
	return context.WithValue(ctx, peerKey{}, originOf(c))
}

type credentials struct {
	uid, gid uint32
	pid      int32
}

// ProcessOf returns the user and the process that connected to the unix socket of a request; false if
// they are not known.
func ProcessOf(r *http.Request) (uid uint32, pid int32, ok bool) {
	if o, _ := r.Context().Value(peerKey{}).(*origin); o != nil {
		return o.uid, o.pid, o.known
	}
	return 0, 0, false
}

// local is the policy of requests that come through no [Listener].
var local = Policy{Roles: access.All, Anonymous: access.All, Local: true}

// Identify returns who makes a request, and the policy of the listener. The code of an
// error is MisdirectedRequest or Unauthenticated; it may wrap an [access.ExpiredError].
//
// A bearer token comes first, then a client certificate, then the peer of a unix
// socket. Wrong credentials are an error, even where callers without identity
// may do what the request asks for: who sends them expects them to be checked.
func (c *Callers) Identify(r *http.Request, now time.Time) (*access.Caller, Policy, error) {
	policy := local
	var hosts *Hosts
	if c != nil {
		policy, hosts = Policy{}, c.Hosts // of a request that came through no Listener
	}
	if l, ok := r.Context().Value(listenerKey{}).(*Listener); ok {
		policy = l.Policy
	}
	if policy.ChecksHost && !hosts.Allow(r.Host) {
		return nil, policy, fault.Errorf(MisdirectedRequest, "host %q is not allowed, which protects against DNS rebinding: "+
			"call lbd by IP address or as localhost, or add --allow-host", fault.Clip(r.Host))
	}
	caller, err := c.identified(r, now)
	if err != nil {
		return nil, policy, &fault.Error{Code: Unauthenticated, Detail: err.Error(), Err: err}
	}
	if caller == nil {
		caller = anonymous[policy.Anonymous]
	}
	return caller, policy, nil
}

// Require returns an error if the caller may not do what role permits. Its code is
// Unauthenticated if another caller may on the same listener, else PermissionDenied. Its
// Role is the missing one.
func Require(c *access.Caller, p Policy, role access.Roles) error {
	if (c.Roles & p.Roles).Has(role) {
		return nil
	}
	missing := role &^ (c.Roles & p.Roles)
	code := PermissionDenied
	if p.Identities && c.Name == "" && p.Roles.Has(missing) {
		code = Unauthenticated
	}
	var why string
	switch {
	case p.Limited.Has(missing):
		why = "other machines can connect to the listener, and TLS or identities are missing. " + remedies
	case !p.Roles.Has(missing):
		why = "the listener has " + describe(p.Roles)
	case c.Name == "":
		why = "callers without identity have " + describe(p.Anonymous)
	default:
		why = c.Name + " has " + describe(c.Roles)
	}
	e := fault.Errorf(code, "role %v is required: %s", missing, why)
	e.Role = missing.String()
	return e
}

// describe returns what an error calls roles.
func describe(r access.Roles) string {
	if r == 0 {
		return "no roles"
	}
	return "the roles " + r.String()
}

// anonymous has the callers without identity by their roles.
var anonymous = func() (callers [access.All + 1]*access.Caller) {
	for r := range callers {
		callers[r] = access.Anonymous(access.Roles(r))
	}
	return callers
}()

// identified returns the caller whose credentials a request has, or nil if it has
// none or none are known.
func (c *Callers) identified(r *http.Request, now time.Time) (*access.Caller, error) {
	if c == nil || c.Identities == nil {
		return nil, nil
	}
	known := c.Identities()
	if h := r.Header["Authorization"]; len(h) > 0 {
		token, err := bearer(h)
		if err != nil {
			return nil, err
		}
		return known.Token(token, now)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return known.Certificate(r.TLS.PeerCertificates[0], now)
	}
	if o, _ := r.Context().Value(peerKey{}).(*origin); o != nil && o.known {
		return known.Peer(o.uid, o.gid, now)
	}
	return nil, nil
}

// bearer returns the token of Authorization headers (RFC 6750).
func bearer(headers []string) (string, error) {
	if len(headers) != 1 {
		return "", errors.New("more than one Authorization header")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errors.New("the Authorization header must be: Bearer TOKEN")
	}
	return token, nil
}
