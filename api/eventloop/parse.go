package eventloop

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	// maxHead is the maximum length of the head of a request, and of the head and the body.
	maxHead = 16 << 10
	// maxBody is the maximum length of the body of a request.
	maxBody = 4 << 10
	// maxHeaders is the maximum number of header lines.
	maxHeaders = 40
	// maxName is the maximum length of the name of a header.
	maxName = 64
)

// verdict is what to do with what was received.
type verdict int

const (
	// served: the request was answered.
	served verdict = iota
	// incomplete: the rest of the request is missing.
	incomplete
	// foreign: net/http must serve the connection, from this request on.
	foreign
	// streamed: the answer to the request is a stream.
	streamed
	// last: the request was answered, and the connection ends.
	last
	// aborted: the connection ends without the response.
	aborted
)

// route is a route that loops serve.
type route int

const (
	getPick route = iota
	getV1Pick
	postPick
	postV1Pick
	watchClusters
	watchEvents
	watchDaemon
	endLease // the first of those with a parameter in the path
	watchCluster
	routes
)

// line is a request line.
type line struct {
	route  route
	method string
	target []byte
	path   int    // the length of the path
	id     []byte // of the lease, or the name of the cluster
}

const (
	version      = " HTTP/1.1"
	leasesPath   = "/v1/leases/"
	donePath     = "/done"
	clustersPath = "/v1/clusters/"
	watchPath    = "/watch"
)

// parseLine parses a request line, without its end. It reports false if net/http must serve the
// request.
func parseLine(b []byte) (l line, ok bool) {
	var rest []byte
	switch {
	case bytes.HasPrefix(b, []byte("GET /")):
		rest, l.method = b[len("GET "):], http.MethodGet
	case bytes.HasPrefix(b, []byte("POST /")):
		rest, l.method = b[len("POST "):], http.MethodPost
	default:
		return l, false
	}
	if len(rest) <= len(version) || string(rest[len(rest)-len(version):]) != version {
		return l, false
	}
	l.target = rest[:len(rest)-len(version)]
	if !consists(l.target, &targetBytes) {
		return l, false
	}
	if l.path = bytes.IndexByte(l.target, '?'); l.path < 0 {
		l.path = len(l.target)
	}
	path, methodAndPath := l.target[:l.path], b[:len(b)-len(rest)+l.path]
	for l.route = range endLease {
		if string(methodAndPath) == routePatterns[l.route] {
			return l, true
		}
	}
	if l.method == http.MethodPost {
		l.route = endLease
		l.id, ok = between(path, leasesPath, donePath, &idBytes)
	} else {
		l.route = watchCluster
		l.id, ok = between(path, clustersPath, watchPath, &pathBytes)
	}
	return l, ok
}

// between returns what is between two parts of a path. It reports false if it is empty, or has other
// bytes.
func between(path []byte, before, after string, bytesIn *[256]bool) (b []byte, ok bool) {
	if len(path) <= len(before)+len(after) || string(path[:len(before)]) != before || string(path[len(path)-len(after):]) != after {
		return nil, false
	}
	b = path[len(before) : len(path)-len(after)]
	return b, consists(b, bytesIn)
}

// Tables of the bytes that have no meaning of their own, by place.
var (
	targetBytes = table(func(c byte) bool { return c > ' ' && c < 0x7f && c != '#' })
	idBytes     = table(func(c byte) bool { return isAlphanumeric(c) || c == '-' || c == '_' })
	pathBytes   = table(func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("-_.~:", c) >= 0 })
	nameBytes   = table(func(c byte) bool { return isAlphanumeric(c) || c == '-' })
	valueBytes  = table(func(c byte) bool { return c >= ' ' && c < 0x7f || c == '\t' })
	hostBytes   = table(func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte(".-_:[]", c) >= 0 })
)

func table(in func(byte) bool) (t [256]bool) {
	for c := range t {
		t[c] = in(byte(c))
	}
	return t
}

// consists reports whether s has only bytes of a table.
func consists[T string | []byte](s T, of *[256]bool) bool {
	for i := range len(s) {
		if !of[s[i]] {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// fields are the headers of a request. They are shared by requests with the same header lines, and are
// not modified.
type fields struct {
	lines  string // without the empty line
	header http.Header
	host   string
	length int // Content-Length; 0 if absent
	// sized says that there is a Content-Length.
	sized bool
	// closes says that the request is the last one of its connection.
	closes bool
	// secret says that the lines have credentials: other callers' lines are not compared with them, as
	// the time of that depends on how much of them is equal.
	secret bool
	// foreign says that net/http must serve the request.
	foreign bool
}

// parseFields parses header lines, which each end with CRLF.
func parseFields(b []byte) *fields {
	f := &fields{lines: string(b), header: make(http.Header), foreign: true}
	hosts := 0
	rest := f.lines
	for n := 0; rest != ""; n++ {
		var text string
		text, rest, _ = strings.Cut(rest, "\r\n")
		colon := strings.IndexByte(text, ':')
		if colon < 1 || colon > maxName || n == maxHeaders {
			return f
		}
		name, value := text[:colon], strings.Trim(text[colon+1:], " \t")
		if !consists(name, &nameBytes) || !consists(value, &valueBytes) {
			return f
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Host":
			if hosts++; hosts > 1 || value == "" || !consists(value, &hostBytes) {
				return f
			}
			f.host = value
			continue // as net/http, which has it in Request.Host only
		case "Content-Length":
			n, ok := parseLength(value)
			if f.sized || !ok {
				return f
			}
			f.length, f.sized = n, true
		case "Authorization":
			f.secret = true
		case "Connection":
			switch {
			case len(f.header[name]) > 0:
				return f
			case strings.EqualFold(value, "close"):
				f.closes = true
			case !strings.EqualFold(value, "keep-alive"):
				return f
			}
		case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive", "Proxy-Connection", "Pragma":
			return f
		}
		f.header[name] = append(f.header[name], value)
	}
	f.foreign = hosts != 1
	return f
}

// parseLength parses a Content-Length, which net/http understands in more forms.
func parseLength(s string) (n int, ok bool) {
	if s == "" || len(s) > len("4096") || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	length, err := strconv.ParseUint(s, 10, 64)
	return int(length), err == nil && length <= maxBody
}

// plausible reports whether the beginning of a request, whose head is incomplete, may become one that
// a loop serves. Its lines must end with CRLF, since a head with other ends would never be complete.
func plausible(b []byte) bool {
	get, post := []byte("GET /"), []byte("POST /")
	if !bytes.HasPrefix(get, b[:min(len(b), len(get))]) && !bytes.HasPrefix(post, b[:min(len(b), len(post))]) {
		return false
	}
	return bytes.Count(b, []byte("\n")) == bytes.Count(b, []byte("\r\n"))
}
