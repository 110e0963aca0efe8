package resource

import (
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// RequestHash returns the hash that the route's policies make of a request, as
// gRPC's config selector makes it (gRFC A42): each policy's own hash is combined
// with those before it. ok is false where no policy makes one; gRPC then draws a
// random number. channelID is what a policy without header takes.
func (r *Route) RequestHash(req *Request, channelID uint64) (hash uint64, ok bool) {
	for i := range r.Hash {
		p := &r.Hash[i]
		own, made := p.hash(req, channelID)
		if req.Trace != nil {
			req.Trace.Hash = append(req.Trace.Hash, HashLook{Policy: p, Made: made, Hash: own})
		}
		if !made {
			continue
		}
		hash, ok = bits.RotateLeft64(hash, 1)^own, true
		if p.Terminal {
			break
		}
	}
	return hash, ok
}

// hash is the policy's own hash of a request, which is not made where its header
// is absent.
func (p *HashPolicy) hash(req *Request, channelID uint64) (hash uint64, made bool) {
	if p.Header == "" {
		return channelID, true
	}
	if strings.HasSuffix(p.Header, "-bin") {
		return 0, false
	}
	value, there := headerValue(req.Headers, p.Header)
	if !there {
		return 0, false
	}
	if p.Regex != nil {
		value = p.Regex.ReplaceAllString(value, p.Substitution)
	}
	return xxhash.Sum64String(value), true
}
