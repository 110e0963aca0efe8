package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/service/access"
)

// UnixPrefix begins the address of a unix socket; the path follows.
const UnixPrefix = "unix:"

// DefaultMode is the mode of a unix socket: the daemon's user and group may
// connect.
const DefaultMode fs.FileMode = 0o660

// A Spec is one listener as --listen describes it:
//
//	127.0.0.1:8080
//	0.0.0.0:8443,tls,roles=pick
//	unix:/run/lbd.sock,mode=0660,roles=pick+read
type Spec struct {
	// Address is host:port or unix:PATH.
	Address string
	// TLS says that connections begin with a TLS handshake.
	TLS bool
	// Mode is that of a unix socket.
	Mode fs.FileMode
	// Roles are those that any caller can have on the listener.
	Roles access.Roles
	// Anonymous are the roles of callers without identity; nil if not given.
	Anonymous *access.Roles
}

// Parse parses the values of --listen. Options follow an address after commas; a
// value that is an option belongs to the address before it, as flags and
// environment variables are split at commas.
func Parse(values []string) ([]Spec, error) {
	var specs []Spec
	seen := make(map[string]bool)
	for _, v := range values {
		for field := range strings.SplitSeq(v, ",") {
			if isOption(field) {
				if len(specs) == 0 {
					return nil, fmt.Errorf("%q: must be host:port or unix:PATH; options come after it", field)
				}
				s := &specs[len(specs)-1]
				if err := s.set(field, seen); err != nil {
					return nil, fmt.Errorf("%s: %q: %w", s.Address, field, err)
				}
				continue
			}
			if err := validAddress(field); err != nil {
				return nil, fmt.Errorf("%q: %w", field, err)
			}
			specs = append(specs, Spec{Address: field, Mode: DefaultMode, Roles: access.All})
			clear(seen)
		}
	}
	for _, s := range specs {
		if a := s.Anonymous; a != nil && !s.Roles.Has(*a) {
			return nil, fmt.Errorf("%s: \"anonymous=%v\": the listener lacks %v: it has the roles %v", s.Address, *a, *a&^s.Roles, s.Roles)
		}
	}
	return specs, nil
}

// isOption reports whether a field is meant as an option. An address has a colon
// before any "=".
func isOption(field string) bool {
	key, _, _ := strings.Cut(field, "=")
	return !strings.Contains(key, ":")
}

func (s *Spec) set(field string, seen map[string]bool) error {
	key, value, hasValue := strings.Cut(field, "=")
	if seen[key] {
		return errors.New("duplicate option")
	}
	seen[key] = true
	switch {
	case key == "tls" && !hasValue:
		if s.IsUnix() {
			return errors.New("unix sockets do not support TLS")
		}
		s.TLS = true
	case key == "mode" && hasValue:
		mode, err := strconv.ParseUint(value, 8, 32)
		if err != nil || mode > 0o777 {
			return errors.New("must be an octal file mode, such as mode=0660")
		}
		if !s.IsUnix() {
			return errors.New("only unix sockets have a mode")
		}
		s.Mode = fs.FileMode(mode)
	case (key == "roles" || key == "anonymous") && hasValue:
		roles, err := access.ParseRoles(value)
		if err != nil {
			return err
		}
		if key == "roles" {
			s.Roles = roles
		} else {
			s.Anonymous = &roles
		}
	case access.IsRole(field):
		return fmt.Errorf("join roles with +, such as roles=pick+%s", field)
	default:
		return errors.New("must be host:port or unix:PATH, or an option: tls, mode=MODE, roles=ROLES, anonymous=ROLES")
	}
	return nil
}

func validAddress(address string) error {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		if path == "" {
			return errors.New("unix: must be followed by a path")
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port or unix:PATH")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q: must be from 0 to 65535", port)
	}
	return nil
}

// IsUnix reports whether s is a unix socket.
func (s *Spec) IsUnix() bool { return strings.HasPrefix(s.Address, UnixPrefix) }

// IsLocal reports whether only processes of this machine reach s: a unix socket,
// or a loopback address.
func (s *Spec) IsLocal() bool {
	host, _, _ := net.SplitHostPort(s.Address) // empty if the address is invalid
	ip, err := netip.ParseAddr(host)
	return s.IsUnix() || host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
