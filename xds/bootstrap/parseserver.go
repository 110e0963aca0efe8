package bootstrap

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/jwt"
)

// servers reads a list of management servers.
func (v *validator) servers(x *value, path string, logger *slog.Logger) []Server {
	var servers []Server
	first := map[string]string{}
	for i, e := range v.list(x, path) {
		at := path + "[" + strconv.Itoa(i) + "]"
		if e.kind == null {
			v.reject(e.at, at, "is null; it must be an object")
			continue
		}
		o, ok := v.object(e, at, "server_uri", "channel_creds", "call_creds", "server_features")
		if !ok {
			continue
		}
		s := o.server(logger)
		if earlier, there := first[s.key]; there {
			v.warn(e.at, at, "is the same server as %s: there is nothing to fall back to", earlier)
		} else {
			first[s.key] = at
		}
		servers = append(servers, s)
	}
	return servers
}

func (f fields) server(logger *slog.Logger) Server {
	s := Server{URI: f.uri()}
	identity := f.channelCredentials(&s, logger)
	f.callCredentials(&s, &identity)
	f.features(&s)
	s.key = fmt.Sprintf("%q %s fail_on_data_errors=%t resource_timer_is_transient_error=%t trusted_xds_server=%t",
		s.URI, identity, s.FailOnDataErrors, s.ResourceTimerIsTransientError, s.TrustedXDSServer)
	if len(f.problems.list) == 0 {
		// Reject a URI that grpc does not support.
		if cc, err := s.Dial(); err != nil {
			f.reject(f.place("server_uri"), join(f.path, "server_uri"), "%v", err)
		} else if err := cc.Close(); err != nil {
			f.reject(f.place("server_uri"), join(f.path, "server_uri"), "%v", err)
		}
	}
	return s
}

// uri reads the URI of the server, and rejects frequent errors.
func (f fields) uri() string {
	x, path := f.get("server_uri")
	uri := f.validator.text(x, path)
	scheme, rest, _ := strings.Cut(uri, ":")
	switch {
	case uri == "" && (x == nil || x.kind == text):
		f.reject(f.place("server_uri"), path, "is empty; write HOST:PORT, or unix:///PATH")
	case strings.ContainsAny(uri, " \t\r\n"):
		f.reject(x.at, path, "%q has white space in it", uri)
	case (scheme == "http" || scheme == "https" || scheme == "grpc" || scheme == "grpcs") && strings.HasPrefix(rest, "//"):
		host, _, _ := strings.Cut(rest[2:], "/")
		f.reject(x.at, path, "%q is a URL; write %q: channel_creds say whether TLS is used", uri, host)
	case scheme == "xds" && strings.HasPrefix(rest, "//"):
		f.reject(x.at, path, "%q is a target of xDS; a management server is found without xDS, as HOST:PORT", uri)
	case uri != "" && !strings.Contains(uri, ":") || strings.HasPrefix(uri, "[") && net.ParseIP(strings.Trim(uri, "[]")) != nil:
		f.warn(x.at, path, "%q has no port: 443 is used", uri)
	}
	return uri
}

// channelCredentials selects the first supported credentials, as gRPC does, and returns their
// identity.
func (f fields) channelCredentials(s *Server, logger *slog.Logger) (identity string) {
	x, path := f.get("channel_creds")
	var skipped []string
	for i, e := range f.list(x, path) {
		at := path + "[" + strconv.Itoa(i) + "]"
		o, _ := f.object(e, at, "type", "config")
		config, below := o.get("config")
		switch kind := o.text("type"); kind {
		case "insecure":
			s.Credentials, s.transport = kind, insecure.NewCredentials()
			return kind
		case "tls":
			provider := f.certificates(config, below, false, logger)
			s.Credentials, s.transport = kind, reloading{provider}
			if provider == nil {
				return kind
			}
			return kind + " " + provider.String()
		default:
			skipped = append(skipped, strconv.Quote(kind))
			f.warn(e.at, at, "%q are credentials that lbd does not have: skipped", kind)
		}
	}
	switch {
	case len(skipped) > 0:
		f.reject(f.place("channel_creds"), path, "has only %s; lbd has \"insecure\" and \"tls\"%s", strings.Join(skipped, ", "), googleDefault(skipped))
	case x == nil || x.kind == list:
		f.reject(f.place("channel_creds"), path, `is missing; write [{"type": "insecure"}] or [{"type": "tls"}]`)
	}
	return ""
}

func googleDefault(skipped []string) string {
	if slices.Contains(skipped, `"google_default"`) {
		return "; google_default, credentials of Google Cloud's, cannot be had"
	}
	return ""
}

// callCredentials reads all supported call credentials (gRFC A97).
func (f fields) callCredentials(s *Server, identity *string) {
	x, path := f.get("call_creds")
	for i, e := range f.list(x, path) {
		at := path + "[" + strconv.Itoa(i) + "]"
		o, ok := f.object(e, at, "type", "config")
		if !ok {
			continue
		}
		if kind := o.text("type"); kind != "jwt_token_file" {
			f.warn(e.at, at, "%q are credentials that lbd does not have: skipped", kind)
			continue
		}
		config, below := o.get("config")
		c, _ := f.object(config, below, "jwt_token_file")
		file := c.text("jwt_token_file")
		if file == "" {
			if v, _ := c.get("jwt_token_file"); v == nil || v.kind == text {
				f.reject(max(c.place("jwt_token_file"), o.at), join(below, "jwt_token_file"), "is empty; write the path of the file that holds the token")
			}
			continue
		}
		if s.Credentials == "insecure" {
			f.warn(e.at, at, "is not used: a token is sent over TLS only, and channel_creds are insecure")
			continue
		}
		token, err := jwt.NewTokenFileCallCredentials(file)
		if err != nil {
			f.reject(e.at, at, "%v", err)
			continue
		}
		f.secret(c.place("jwt_token_file"), join(below, "jwt_token_file"), file)
		s.calls = append(s.calls, token)
		*identity += fmt.Sprintf(" jwt_token_file %q", file)
	}
}

// features reads the server features.
func (f fields) features(s *Server) {
	x, path := f.get("server_features")
	for i, e := range f.list(x, path) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch feature := f.validator.text(e, at); feature {
		case "fail_on_data_errors":
			s.FailOnDataErrors = true
		case "resource_timer_is_transient_error":
			s.ResourceTimerIsTransientError = true
		case "trusted_xds_server":
			s.TrustedXDSServer = true
		case "ignore_resource_deletion": // the default since gRFC A88
		case "xds_v3", "": // all are v3 now
		default:
			f.warn(e.at, at, "unknown feature %q, ignored", feature)
		}
	}
}
