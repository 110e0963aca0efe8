package stand

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Nginx is a process of nginx in front of upstreams, with connections that stay open on both sides.
type Nginx struct {
	Address, Version string

	cmd   *exec.Cmd
	ended chan struct{}
}

const configuration = `daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	keepalive_requests 100000000;
	tcp_nodelay on;
	upstream app { %[3]s keepalive 32; keepalive_requests 100000000; }
	server {
		listen %[2]s;
		location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
			proxy_next_upstream error timeout%[4]s; }
	}
}
`

// StartNginx starts nginx, with its files in a new folder of dir. next has more conditions of proxy_next_upstream.
func StartNginx(binary, dir, next string, upstreams ...string) (*Nginx, error) {
	dir = filepath.Join(dir, "nginx")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the worker of nginx may have another user
		return nil, err
	}
	version, err := exec.Command(binary, "-v").CombinedOutput() //nolint:noctx // it only prints
	if err != nil {
		return nil, fmt.Errorf("nginx: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	p := &Nginx{Address: l.Addr().String(), ended: make(chan struct{})}
	_, p.Version, _ = strings.Cut(strings.TrimSpace(string(version)), "nginx/")
	_ = l.Close()
	path, servers := filepath.Join(dir, "nginx.conf"), ""
	for _, upstream := range upstreams {
		servers += "server " + upstream + "; "
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, configuration, dir, p.Address, servers, next), 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(binary, "-p", dir, "-e", "stderr", "-c", path) //nolint:gosec,noctx // the caller chose it; stop ends it
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", p.Address) //nolint:noctx // on loopback
		if err == nil {
			return p, conn.Close()
		}
		select {
		case <-p.ended:
			return nil, errors.New("nginx has ended")
		default:
		}
		if time.Now().After(end) {
			p.Stop()
			return nil, err
		}
	}
}

// Stop ends the process.
func (p *Nginx) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
}
