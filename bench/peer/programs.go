package peer

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs are the paths of the peers that are programs; empty if not installed.
type Programs struct {
	Nginx, HAProxy, Envoy string
}

// FindPrograms looks for the programs in a directory, and then in PATH.
func FindPrograms(dir string) Programs {
	find := func(name string) string {
		if path, err := filepath.Abs(filepath.Join(dir, name)); err == nil && dir != "" {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
		path, err := exec.LookPath(name)
		if err != nil {
			return ""
		}
		return path
	}
	return Programs{Nginx: find("nginx"), HAProxy: find("haproxy"), Envoy: find("envoy")}
}

// Missing lists the programs that are not installed.
func (p Programs) Missing() (names []string) {
	for _, program := range []struct{ name, path string }{{"nginx", p.Nginx}, {"haproxy", p.HAProxy}, {"envoy", p.Envoy}} {
		if program.path == "" {
			names = append(names, program.name)
		}
	}
	return names
}

// Listen is where a program listens.
type Listen struct{ Network, Address string }

// nginxAddress is a listen address in nginx's form.
func (l Listen) nginxAddress() string {
	if l.Network == "unix" {
		return "unix:" + l.Address
	}
	return l.Address
}

// nginxConfig has one process without workers: a hop for one connection needs no more.
const nginxConfig = `daemon off; master_process off; error_log stderr crit; pid %[1]s/nginx.pid;
events { worker_connections 4096; }
http {
	access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; tcp_nodelay on;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	upstream service { server %[3]s; keepalive 128; keepalive_requests 1000000000; keepalive_timeout 3600s; }
	server {
		listen %[2]s backlog=4096;
		location / { %[4]s }
	}
}
`

// NginxConstant returns the command of an nginx that answers a constant.
func (p Programs) NginxConstant(dir string, at Listen) ([]string, error) {
	return p.nginx(dir, at, "127.0.0.1:9", fmt.Sprintf("default_type application/json; return 200 '%s';", Body))
}

// NginxHop returns the command of an nginx that forwards requests to an upstream.
func (p Programs) NginxHop(dir string, at Listen, upstream string) ([]string, error) {
	return p.nginx(dir, at, upstream, `proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection "";`)
}

func (p Programs) nginx(dir string, at Listen, upstream, action string) ([]string, error) {
	config, err := write(dir, "nginx.conf", fmt.Sprintf(nginxConfig, dir, at.nginxAddress(), upstream, action))
	return []string{p.Nginx, "-p", dir, "-c", config}, err
}

const haproxyConfig = `global
	maxconn 4096
	nbthread 1
defaults
	mode http
	timeout connect 10s
	timeout client 1h
	timeout server 1h
	option http-keep-alive
	http-reuse always
frontend in
	bind %s
	default_backend service
backend service
	server one %s
`

// HAProxyHop returns the command of an HAProxy that forwards requests to an upstream.
func (p Programs) HAProxyHop(dir string, at Listen, upstream string) ([]string, error) {
	address := at.Address
	if at.Network == "unix" {
		address = "unix@" + address
	}
	config, err := write(dir, "haproxy.cfg", fmt.Sprintf(haproxyConfig, address, upstream))
	return []string{p.HAProxy, "-db", "-f", config}, err
}

const envoyConfig = `
static_resources:
  listeners:
  - address: %s
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          generate_request_id: false
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: service}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: service
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: service
      endpoints: [{lb_endpoints: [{endpoint: {address: %s}}]}]
`

// EnvoyHop returns the command of an Envoy that forwards requests to an upstream.
func (p Programs) EnvoyHop(dir string, at Listen, upstream string) ([]string, error) {
	service, err := envoyAddress(Listen{"tcp", upstream})
	if err != nil {
		return nil, err
	}
	address, err := envoyAddress(at)
	if err != nil {
		return nil, err
	}
	config, err := write(dir, "envoy.yaml", fmt.Sprintf(envoyConfig, address, service))
	return []string{p.Envoy, "-c", config, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"}, err
}

func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return path, nil
}

// envoyAddress is an address in Envoy's form.
func envoyAddress(l Listen) (string, error) {
	if l.Network == "unix" {
		return fmt.Sprintf("{pipe: {path: %q}}", l.Address), nil
	}
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return "", fmt.Errorf("split %s: %w", l.Address, err)
	}
	return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port), nil
}
