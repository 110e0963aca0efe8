package lb

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/overload"
)

func TestPermit(t *testing.T) {
	own := netip.MustParseAddrPort("10.1.2.3:8080")
	p := &Permit{
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.1.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		Denied:  DefaultDenied,
		Own:     func(a netip.AddrPort) bool { return a == own },
	}
	all := &Permit{Denied: DefaultDenied}
	for _, tt := range []struct {
		permit  *Permit
		address string
		want    string
	}{
		{p, "10.1.2.3:80", ""},
		{p, "10.1.2.3:8080", "10.1.2.3:8080 is denied: lbd listens there (--deny-endpoints=none permits it)"},
		{p, "[::ffff:10.1.2.3]:8080", "is denied: lbd listens there"},
		{p, "11.0.0.1:80", "11.0.0.1 is not in --allow-endpoints"},
		{p, "169.254.1.1:80", "169.254.1.1 is denied by --deny-endpoints (169.254.0.0/16)"},
		{p, "[2001:db8::1]:80", ""},
		{p, "[2001:db9::1]:80", "not in --allow-endpoints"},
		{all, "169.254.169.254:80", "(169.254.0.0/16)"},
		{all, "[::ffff:169.254.169.254]:80", "(169.254.0.0/16)"},
		{all, "[fe80::1%eth0]:80", "(fe80::/10)"},
		{all, "[fd00:ec2::254]:80", "(fd00:ec2::254/128)"},
		{all, "0.0.0.0:80", "(0.0.0.0/8)"},
		{all, "[::]:80", "(::/128)"},
		{all, "127.0.0.1:80", ""},
		{nil, "0.0.0.0:80", ""},
	} {
		err := tt.permit.Check(netip.MustParseAddrPort(tt.address))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.address, err, tt.want)
		}
	}
}

// A name that resolves to a denied address is denied as well: the check is of what the
// connection is made to.
func TestPermitAfterResolution(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	noError(t, err)
	for _, denied := range []bool{false, true} {
		p := &Permit{}
		if denied {
			p.Denied = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		}
		d := NewDialer(nil, overload.Budget{}, nil, p)
		conn, err := d.connect(t.Context(), "tcp", "localhost:"+port)
		if err == nil {
			_ = conn.Close()
		}
		if _, ok := errors.AsType[*DeniedError](err); ok != denied || (err != nil) != denied {
			t.Errorf("denied: %v: %v", denied, err)
		}
		d.Close()
	}
}
