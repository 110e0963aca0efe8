package resource

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
