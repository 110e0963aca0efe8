package bootstrap

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/jwt"
)

func (v *validator) servers(x *value) []Server {
	var servers []Server
	first := map[string]string{}
	for _, e := range v.list(x) {
		if e.kind == null {
			v.rejectValue(e, "is null; it must be an object")
			continue
		}
		o, ok := v.object(e, "server_uri", "channel_creds", "call_creds", "server_features")
		if !ok {
			continue
		}
		s := o.server()
		if earlier, there := first[s.key]; there {
			v.warnValue(e, "is the same server as %s: there is nothing to fall back to", earlier)
		} else {
			first[s.key] = e.path
		}
		servers = append(servers, s)
	}
	return servers
}

func (f fields) server() Server {
	s := Server{URI: f.uri()}
	identity := f.channelCredentials(&s)
	f.callCredentials(&s, &identity)
	f.features(&s)
	s.key = fmt.Sprintf("%q %s fail_on_data_errors=%t resource_timer_is_transient_error=%t trusted_xds_server=%t",
		s.URI, identity, s.FailOnDataErrors, s.ResourceTimerIsTransientError, s.TrustedXDSServer)
	if len(f.problems.list) == 0 {
		// Reject a URI that grpc does not support.
		cc, err := s.Dial()
		if err == nil {
			err = cc.Close()
		}
		if err != nil {
			f.rejectValue(f.get("server_uri"), "%v", err)
		}
	}
	return s
}

// uri reads the URI of the server, and rejects frequent errors.
func (f fields) uri() string {
	x := f.get("server_uri")
	uri := f.string(x)
	scheme, rest, _ := strings.Cut(uri, ":")
	switch {
	case uri == "" && (x.none() || x.kind == str):
		f.rejectValue(x, "is empty; write HOST:PORT, or unix:///PATH")
	case strings.ContainsAny(uri, " \t\r\n"):
		f.rejectValue(x, "%q has white space in it", uri)
	case (scheme == "http" || scheme == "https" || scheme == "grpc" || scheme == "grpcs") && strings.HasPrefix(rest, "//"):
		host, _, _ := strings.Cut(rest[2:], "/")
		f.rejectValue(x, "%q is a URL; write %q: channel_creds say whether TLS is used", uri, host)
	case scheme == "xds" && strings.HasPrefix(rest, "//"):
		f.rejectValue(x, "%q is a target of xDS; a management server is found without xDS, as HOST:PORT", uri)
	case uri != "" && !strings.Contains(uri, ":") || strings.HasPrefix(uri, "[") && net.ParseIP(strings.Trim(uri, "[]")) != nil:
		f.warnValue(x, "%q has no port: 443 is used", uri)
	}
	return uri
}

// channelCredentials selects the first supported credentials, as gRPC does, and returns their
// identity.
func (f fields) channelCredentials(s *Server) (identity string) {
	x := f.get("channel_creds")
	var skipped []string
	for _, e := range f.list(x) {
		o, _ := f.object(e, "type", "config")
		switch kind := o.text("type"); kind {
		case "insecure":
			s.Credentials, s.transport = kind, insecure.NewCredentials()
			return kind
		case "tls":
			provider := f.certificates(o.get("config"), false)
			s.Credentials, s.transport = kind, reloading{credentials.NewTLS(nil), provider}
			if provider == nil {
				return kind
			}
			return kind + " " + provider.String()
		default:
			skipped = append(skipped, strconv.Quote(kind))
			f.warnValue(e, "%q are credentials that lbd does not have: skipped", kind)
		}
	}
	switch {
	case len(skipped) > 0:
		f.rejectValue(x, "has only %s; lbd has \"insecure\" and \"tls\"%s", strings.Join(skipped, ", "), googleDefault(skipped))
	case x.none() || x.kind == list:
		f.rejectValue(x, `is missing; write [{"type": "insecure"}] or [{"type": "tls"}]`)
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
	for _, e := range f.list(f.get("call_creds")) {
		o, ok := f.object(e, "type", "config")
		if !ok {
			continue
		}
		if kind := o.text("type"); kind != "jwt_token_file" {
			f.warnValue(e, "%q are credentials that lbd does not have: skipped", kind)
			continue
		}
		c, _ := f.object(o.get("config"), "jwt_token_file")
		x := c.get("jwt_token_file")
		file := f.string(x)
		if file == "" {
			if x.none() || x.kind == str {
				f.reject(max(x.at, o.at), x.path, "is empty; write the path of the file that holds the token")
			}
			continue
		}
		if s.Credentials == "insecure" {
			f.warnValue(e, "is not used: a token is sent over TLS only, and channel_creds are insecure")
			continue
		}
		token, err := jwt.NewTokenFileCallCredentials(file)
		if err != nil {
			f.rejectValue(e, "%v", err)
			continue
		}
		f.secret(x)
		s.calls = append(s.calls, token)
		*identity += fmt.Sprintf(" jwt_token_file %q", file)
	}
}

func (f fields) features(s *Server) {
	for _, e := range f.list(f.get("server_features")) {
		switch feature := f.string(e); feature {
		case "fail_on_data_errors":
			s.FailOnDataErrors = true
		case "resource_timer_is_transient_error":
			s.ResourceTimerIsTransientError = true
		case "trusted_xds_server":
			s.TrustedXDSServer = true
		case "ignore_resource_deletion": // the default since gRFC A88
		case "xds_v3", "": // all are v3 now
		default:
			f.warnValue(e, "unknown feature %q, ignored", feature)
		}
	}
}
