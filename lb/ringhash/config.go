package ringhash

import (
	"strings"

	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Config is ring_hash's config (gRFC A42). Both sizes are entries of the ring, sizeCap
// at most.
type Config struct {
	serviceconfig.LoadBalancingConfig

	MinSize, MaxSize uint64
}

const (
	defaultMinSize = 1024
	// maxSize limits what can be configured, and sizeCap the ring.
	maxSize = 8 << 20
	sizeCap = 4096
)

func readConfig(r *policy.ConfigReader) Config {
	const minRingSize, maxRingSize, requestHashHeader = "minRingSize", "maxRingSize", "requestHashHeader"
	var c Config
	header := ""
	r.Read(map[string]any{minRingSize: &c.MinSize, maxRingSize: &c.MaxSize}, map[string]any{requestHashHeader: &header})
	if header != "" {
		judgeHeader(r, strings.ToLower(header), requestHashHeader)
	}
	if c.MinSize == 0 {
		c.MinSize = defaultMinSize
	}
	if c.MaxSize == 0 {
		c.MaxSize = sizeCap
	}
	for _, size := range []struct {
		name    string
		entries uint64
	}{{minRingSize, c.MinSize}, {maxRingSize, c.MaxSize}} {
		if size.entries > sizeCap {
			r.WarnByHand(size.name, "is %d: reduced to %d, the maximum", size.entries, sizeCap)
		}
		if size.entries > maxSize {
			r.Invalid(size.name, "is %d: it must be at most %d", size.entries, maxSize)
		}
	}
	if c.MinSize > c.MaxSize {
		r.Invalid(minRingSize, "is %d, more than the maximum, %d", c.MinSize, c.MaxSize)
	}
	c.MinSize, c.MaxSize = min(c.MinSize, sizeCap), min(c.MaxSize, sizeCap)
	return c
}

// judgeHeader validates the header that gRPC would hash (gRFC A76).
func judgeHeader(r *policy.ConfigReader, header, member string) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	switch {
	case header[0] != ':' && strings.Trim(header, letters) != "":
		r.Invalid(member, "is %q, which cannot name a header", header)
	case strings.HasSuffix(header, "-bin"):
		r.Invalid(member, "is %q: a binary header cannot be hashed", header)
	default:
		r.Warn(member, "is not applied: the hash is the pick's own")
	}
}
