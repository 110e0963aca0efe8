package observe

import (
	"bytes"
	"encoding/json"

	"github.com/lbd-dev/lbd/service/ledger"
)

// naming is the cluster and the targets that encoded data begins with, or names elsewhere. From
// it follows what callers with a scope may see of the data, without decoding it.
type naming struct {
	Name    string   `json:"name"`
	Target  string   `json:"target,omitempty"`
	Targets []string `json:"targets,omitempty"`
}

func namingOf(c *ClusterSummary) naming {
	return naming{Name: c.Name, Target: c.Target, Targets: c.Targets}
}

// within returns data, which is the JSON of something that begins with a [ClusterSummary], as a
// caller of a scope sees it. Only data of a tree whose target is out of the scope is decoded:
// mask does that, and encodes it again.
func (n naming) within(s *ledger.Scope, data []byte, mask func(*ledger.Scope, []byte) []byte) []byte {
	if s.All() {
		return data
	}
	if !s.Target(n.Target) {
		return mask(s, data)
	}
	seen := n
	seen.Targets = s.Targets(n.Targets)
	if len(seen.Targets) == len(n.Targets) {
		return data
	}
	before := bytes.TrimSuffix(encode(n), []byte("}"))
	rest, ok := bytes.CutPrefix(data, before)
	if !ok {
		return mask(s, data)
	}
	return append(bytes.TrimSuffix(encode(seen), []byte("}")), rest...)
}

// countsWithin returns the JSON of the [ClusterCounts] of the cluster as a caller of a scope sees
// them.
func (n naming) countsWithin(s *ledger.Scope, data []byte) []byte {
	if s.Target(n.Target) {
		return data
	}
	return masked[ClusterCounts](s, data)
}

// masked decodes data that this package has encoded, and encodes it as a caller of a scope sees it.
func masked[T interface{ Within(s *ledger.Scope) T }](s *ledger.Scope, data []byte) []byte {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		panic(err) // each of the types decodes
	}
	return encode(v.Within(s))
}
