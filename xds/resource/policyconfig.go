package resource

import "encoding/json"

// PolicyTraits is what the rest of lbd needs to know of a load balancing policy that
// clusters can choose. The policy declares it; the zero value is that of a policy of
// which nothing is known.
type PolicyTraits struct {
	// Judge validates a JSON config, which has gRPC's service-config form. It returns the
	// config as the policy applies it, and what it found. Any goroutine may call it. Nil
	// takes every config as it is.
	Judge func(config json.RawMessage) (applied string, findings []ConfigFinding)
	// IgnoresWeights: the load_balancing_weight of an endpoint does not change its picks.
	IgnoresWeights bool
	// KeepsEndpoint: all picks go to one endpoint, which outlier detection does not eject
	// (gRFC A61).
	KeepsEndpoint bool
	// SharesHold follows the policy's name in a sentence: when the shares of the endpoints
	// that it describes are those of the picks. It is empty if they always are.
	SharesHold string
}

// ConfigFinding is what a load balancing policy finds in its JSON config.
type ConfigFinding struct {
	Kind FindingKind
	// ByHand means that the finding counts only in a config that is written by hand:
	// gRPC accepts the same without a word.
	ByHand bool
	// Member is the name of the JSON member; empty for the config as a whole.
	Member string
	// Text is the sentence that begins with the member.
	Text string
	// Known lists the members that exist, if Member is unknown.
	Known []string
}

// FindingKind is what follows from a finding.
type FindingKind uint8

// The kinds of findings.
const (
	// FindingInvalid rejects the config.
	FindingInvalid FindingKind = iota
	// FindingWarning is a value that does not do what its author expects.
	FindingWarning
	// FindingUnknown is a member that the policy does not have.
	FindingUnknown
)
