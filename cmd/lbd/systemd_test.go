package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
)

// activate makes cmd start as systemd starts a service with these sockets. The
// shell knows its own process id, and keeps it when it becomes lbd.
func activate(t *testing.T, cmd *exec.Cmd, sockets ...interface{ File() (*os.File, error) }) *exec.Cmd {
	t.Helper()
	inShell(cmd, `LISTEN_PID=$$`)
	cmd.Env = append(cmd.Env, "LISTEN_FDS="+strconv.Itoa(len(sockets)), "LISTEN_FDNAMES="+strings.Repeat("lbd.socket:", len(sockets)))
	for _, s := range sockets {
		f, err := s.File()
		noError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return cmd
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	noError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSocketsOfSystemd: sockets of systemd replace --listen, outlive
// the process, and what comes in between waits for the next one.
func TestSocketsOfSystemd(t *testing.T) {
	t.Parallel()
	tcp := listenTCP(t)
	path := filepath.Join(t.TempDir(), "lbd.sock")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	noError(t, err)
	defer func() { _ = unix.Close() }()
	taken := listenTCP(t).Addr().String() // to listen there would fail
	args := []string{"serve", "--data=", "--listen=" + taken, "--log-format=json"}

	p := start(t, activate(t, command(args...), tcp, unix))
	if got, want := p.url, "http://"+tcp.Addr().String(); got != want {
		t.Errorf("serves %s, and should serve %s", got, want)
	}
	client, _, host := dialFor(listen.Spec{Address: listen.UnixPrefix + path})
	for _, c := range []struct {
		client *http.Client
		url    string
	}{{http.DefaultClient, p.url}, {client, "http://" + host}} {
		if a, err := try(t.Context(), c.client, "GET", c.url+"/readyz", ""); err != nil || a.status != http.StatusOK {
			t.Errorf("%s: %+v, %v", c.url, a, err)
		}
	}
	client.CloseIdleConnections()
	if log := p.output(); !strings.Contains(log, `"not_listening":["`+taken+`"]`) {
		t.Errorf("no word about %s in\n%s", taken, log)
	}
	if err := p.end(t, syscall.SIGTERM); err != nil {
		t.Fatalf("%v\n%s", err, p.output())
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("systemd's socket file went with the process: %v", err)
	}

	answered := make(chan error, 1)
	go func() {
		a, err := try(t.Context(), client, "GET", "http://"+host+"/readyz", "")
		if err == nil && a.status != http.StatusOK {
			err = http.ErrNotSupported
		}
		answered <- err
	}()
	// What was asked for and is listened on is not logged, nor is the default.
	args = []string{"serve", "--data=", "--listen=" + tcp.Addr().String(), "--listen=" + listen.UnixPrefix + path, "--listen=" + defaultListen, "--log-format=json"}
	p = start(t, activate(t, command(args...), tcp, unix))
	if err := <-answered; err != nil {
		t.Errorf("connections while no daemon served: %v\n%s", err, p.output())
	}
	if log := p.output(); strings.Contains(log, "not_listening") {
		t.Errorf("unexpected not_listening in\n%s", log)
	}
}

func TestDefaultListen(t *testing.T) {
	t.Parallel()
	var c cli
	if _, _, err := parse(&c, nil); err != nil || !slices.Equal(c.Serve.Listen, []string{defaultListen}) {
		t.Errorf("listens on %v (%v), the documented default is %s", c.Serve.Listen, err, defaultListen)
	}
}

func TestInvalidSocketOfSystemd(t *testing.T) {
	t.Parallel()
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	noError(t, err)
	defer func() { _ = datagrams.Close() }()
	expectFailure(t, activate(t, command("serve", "--data="), listenTCP(t), datagrams), "listen on lbd.socket, which systemd passed")
}

// TestSystemdNotifications: lbd notifies systemd when it is ready and when it stops.
func TestSystemdNotifications(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
	noError(t, err)
	defer func() { _ = socket.Close() }()
	received := func() string {
		noError(t, socket.SetReadDeadline(time.Now().Add(patience)))
		message := make([]byte, 256)
		n, err := socket.Read(message)
		noError(t, err)
		return string(message[:n])
	}
	l := listenTCP(t)
	cmd := activate(t, command("serve", "--data=", "--log-format=json"), l)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path)
	p := start(t, cmd)
	if got := received(); got != "READY=1" {
		t.Errorf("received %q first", got)
	}
	expect(t, http.StatusOK, "GET", p.url+"/readyz", "")
	p.stop(t)
	if got := received(); got != "STOPPING=1" {
		t.Errorf("received %q last", got)
	}
}

// TestSystemdUnreachable: lbd serves although the notification socket does not exist.
func TestSystemdUnreachable(t *testing.T) {
	t.Parallel()
	cmd := command("serve", "--data=", "--listen=127.0.0.1:0", "--log-format=json")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "none"))
	p := start(t, cmd)
	if err := p.end(t, syscall.SIGTERM); err != nil || !strings.Contains(p.output(), "cannot notify systemd") {
		t.Errorf("%v\n%s", err, p.output())
	}
}

// bound is a listener with an address.
type bound struct {
	net.Listener

	at net.Addr
}

func (b bound) Addr() net.Addr { return b.at }

// TestServes: a socket unit may spell an address differently than --listen.
func TestServes(t *testing.T) {
	t.Parallel()
	any6 := &net.TCPAddr{IP: net.IPv6unspecified, Port: 80}
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	for _, tt := range []struct {
		at      net.Addr
		address string
		want    bool
	}{
		{any6, ":80", true},
		{any6, "0.0.0.0:80", true},
		{any6, "[::]:80", true},
		{any6, "localhost:80", true},
		{any6, "10.0.0.7:80", true},
		{any6, ":81", false},
		{any6, "orders.example:80", false},
		{loopback, "127.0.0.1:80", true},
		{loopback, "localhost:80", true},
		{loopback, ":80", false},
		{loopback, "10.0.0.7:80", false},
		{loopback, "[::1]:80", false},
		{loopback, "unix:/run/lbd.sock", false},
		{&net.UnixAddr{Name: "/run/lbd.sock", Net: "unix"}, "unix:/run/lbd.sock", true},
		{&net.UnixAddr{Name: "/run/lbd.sock", Net: "unix"}, ":80", false},
	} {
		if got := serves(bound{at: tt.at}, tt.address); got != tt.want {
			t.Errorf("a listener on %v serves %s: %t, want %t", tt.at, tt.address, got, tt.want)
		}
	}
}

// A socket that other machines reach is not local because --listen names a loopback address.
func TestSpecOfASocket(t *testing.T) {
	t.Parallel()
	specs, err := listen.Parse([]string{"127.0.0.1:80,roles=pick+push"})
	noError(t, err)
	for _, tt := range []struct {
		at    net.IP
		local bool
		roles access.Roles
	}{
		{net.IPv6unspecified, false, access.Pick},
		{net.IPv4(127, 0, 0, 1), true, access.Pick | access.Push},
	} {
		spec := specOf(bound{at: &net.TCPAddr{IP: tt.at, Port: 80}}, specs)
		if p := spec.Policy(false, false); p.Local != tt.local || p.Roles != tt.roles {
			t.Errorf("a socket on %v: local %v, roles %v; want %v, %v", tt.at, p.Local, p.Roles, tt.local, tt.roles)
		}
	}
}
