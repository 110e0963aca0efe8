package decode

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/resource"
)

// batchSize is how many endpoints are allocated at a time. One of them that is still in use
// keeps the memory of all.
const batchSize = 32

// endpointBatch reads the endpoints of a locality. It allocates several at a time.
type endpointBatch struct {
	byHand    bool
	canonical bool // addresses must have their canonical spelling
	id        resource.Locality
	endpoints []*resource.Endpoint // of the whole locality
	fresh     []*resource.Endpoint // those that it read

	pending   []pendingEndpoint
	addresses int    // of all pending endpoints
	text      []byte // of all strings of pending endpoints
	ends      []int  // of the strings in text
}

// pendingEndpoint is an endpoint without its strings. In the batch, these are its addresses
// and its hostname.
type pendingEndpoint struct {
	at        int // in the locality
	addresses int
	health    resource.Health
	weight    uint32
	hashKey   string
	ttl       time.Duration
}

// begin starts a locality.
func (b *endpointBatch) begin(id resource.Locality, size int) {
	b.id, b.endpoints, b.fresh = id, make([]*resource.Endpoint, size), nil
}

// read reads the LbEndpoint at a position of the locality.
func (b *endpointBatch) read(at int, w wire) {
	if len(b.pending) == batchSize {
		b.flush(&w)
	}
	p := pendingEndpoint{at: at, addresses: 1, weight: 1}
	health := w.uint32(2)
	if m, ok := w.message(3); ok {
		of := metadata(m)
		p.hashKey = of.hashKey
		if b.byHand && of.odd {
			w.fail()
		}
		if b.byHand && of.expires {
			if p.ttl, ok = parseTTL(of.ttl); !ok {
				w.fail()
			}
		}
	}
	if weight, ok := w.wrapped(4); ok {
		p.weight = weight
	}
	endpoint, ok := w.message(1)
	if !ok {
		w.fail()
	}
	b.address(&endpoint)
	hostname := endpoint.text(3)
	for {
		more, ok := endpoint.message(4)
		if !ok {
			break
		}
		b.address(&more)
		more.end()
		p.addresses++
	}
	endpoint.end()
	b.string(hostname)
	w.end()
	if health > uint32(resource.HealthDegraded) || p.weight == 0 || b.byHand && p.addresses > 1+MaxAdditionalAddresses {
		w.fail()
	}
	p.health = resource.Health(health)
	b.addresses += p.addresses
	b.pending = append(b.pending, p)
}

// address reads field 1, an Address with a SocketAddress that has a host and a port.
func (b *endpointBatch) address(w *wire) {
	address, _ := w.message(1)
	socket, _ := address.message(1)
	host := socket.text(2)
	if !socket.next(3, protowire.VarintType) || len(host) == 0 {
		w.fail()
		return
	}
	port := socket.varint()
	socket.end()
	address.end()
	if port > math.MaxUint32 || b.byHand && (port == 0 || port > 65535) {
		w.fail()
		return
	}
	b.text = appendHostPort(b.text, host, port)
	b.ends = append(b.ends, len(b.text))
}

// appendHostPort is net.JoinHostPort.
func appendHostPort(b, host []byte, port uint64) []byte {
	if bytes.IndexByte(host, ':') < 0 {
		b = append(b, host...)
	} else {
		b = append(append(append(b, '['), host...), ']')
	}
	return strconv.AppendUint(append(b, ':'), port, 10)
}

// hostOf returns the host of an address that appendHostPort wrote.
func hostOf(address string) string {
	host := address[:strings.LastIndexByte(address, ':')]
	if strings.Contains(host, ":") {
		return host[1 : len(host)-1]
	}
	return host
}

func (b *endpointBatch) string(s []byte) {
	b.text = append(b.text, s...)
	b.ends = append(b.ends, len(b.text))
}

// flush makes the endpoints that are pending.
func (b *endpointBatch) flush(w *wire) {
	if !*w.failed && !b.build() {
		w.fail()
	}
	b.pending, b.addresses, b.text, b.ends = b.pending[:0], 0, b.text[:0], b.ends[:0]
}

// build makes the endpoints, and reports whether their hosts are valid.
func (b *endpointBatch) build() bool {
	text, begin, ends := string(b.text), 0, b.ends
	next := func() string {
		s := text[begin:ends[0]]
		begin, ends = ends[0], ends[1:]
		return s
	}
	endpoints, addresses := make([]resource.Endpoint, len(b.pending)), make([]string, b.addresses)
	for k := range b.pending {
		p := &b.pending[k]
		own := addresses[:p.addresses:p.addresses]
		addresses = addresses[p.addresses:]
		for i := range own {
			own[i] = next()
			host := hostOf(own[i])
			if b.byHand && badHost(host) != "" || b.canonical && resource.CanonicalHost(host) != host {
				return false
			}
		}
		hostname := next()
		if b.byHand && badText(hostname, MaxHostnameBytes) != "" {
			return false
		}
		e := &endpoints[k]
		*e = resource.Endpoint{Addresses: own, Hostname: hostname, Health: p.health, Weight: p.weight, HashKey: p.hashKey, Locality: b.id, TTL: p.ttl}
		b.endpoints[p.at] = e
		b.fresh = append(b.fresh, e)
	}
	return true
}
