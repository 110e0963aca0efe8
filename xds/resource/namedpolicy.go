package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// typedStruct is either of the two messages that carry a policy by gRPC's name,
// with the JSON of its config.
type typedStruct interface {
	proto.Message
	GetTypeUrl() string
	GetValue() *structpb.Struct
}

// structPolicy reads a policy by gRPC's name for it, which ends the type URL
// (gRFC A52). unknown names one that is not available.
func (v *verdict) structPolicy(config *anypb.Any, m typedStruct, field string) (p Policy, unknown string) {
	if !v.carries(config, m, field) {
		return Policy{}, ""
	}
	url := m.GetTypeUrl()
	name := PolicyName(url[strings.LastIndexByte(url, '/')+1:])
	if !v.available(name) {
		return Policy{}, "TypedStruct " + strconv.Quote(string(name))
	}
	field += ".value"
	text, err := json.Marshal(m.GetValue()) // null where there is none
	if err != nil {
		v.refuse(field, "cannot be written as JSON: it holds a number that is none, or a value that is absent")
		return Policy{}, ""
	}
	return v.namedPolicy(name, text, field), ""
}

// available reports whether lbd has a policy by gRPC's name.
func (v *verdict) available(name PolicyName) bool {
	switch name {
	case PolicyWRRLocality, PolicyRoundRobin, PolicyWeightedRoundRobin, PolicyLeastRequest, PolicyRingHash, PolicyPickFirst:
		return true
	default:
		if v.custom == nil {
			return false
		}
		_, ok := v.custom(string(name))
		return ok
	}
}

// namedPolicy reads the JSON config of a policy that is available.
func (v *verdict) namedPolicy(name PolicyName, text json.RawMessage, field string) Policy {
	c := jsonConfig{verdict: v, policy: name, text: text, field: field}
	switch name {
	case PolicyWRRLocality:
		return c.readWRRLocality()
	case PolicyRoundRobin:
		return c.readRoundRobin()
	case PolicyWeightedRoundRobin:
		return c.readWeightedRoundRobin()
	case PolicyLeastRequest:
		count := uint32(defaultChoiceCount)
		c.read(map[string]any{"choiceCount": &count})
		return v.leastRequest(count, join(field, "choiceCount"))
	case PolicyRingHash:
		return c.readRingHash()
	case PolicyPickFirst:
		p := &PickFirst{}
		c.read(map[string]any{"shuffleAddressList": &p.ShuffleAddressList})
		return Policy{Name: PolicyPickFirst, PickFirst: p}
	default:
		c.judgeCustom()
		return Policy{Name: name, Custom: string(text)}
	}
}

// judgeCustom lets a custom policy judge its config, as gRPC's decoder does. One
// that takes none is not asked.
func (c *jsonConfig) judgeCustom() {
	judge, _ := c.custom(string(c.policy))
	if judge == nil {
		if s := string(c.text); s != "{}" && s != "null" {
			c.warn(c.field, "is not heeded: %s takes no config", c.policy)
		}
		return
	}
	if err := judge(c.text); err != nil {
		c.refuse(c.field, "is refused by %s: %v", c.policy, err)
	}
}

// jsonConfig is a policy's JSON config, which stands at a path.
type jsonConfig struct {
	*verdict
	policy PolicyName
	text   json.RawMessage
	field  string
}

// read reads the config's members into what into points to by name. As for
// gRPC, which reads it as Go's encoding/json does, the case of a name does not
// count, null is absent, and of two spellings the last counts.
func (c *jsonConfig) read(into map[string]any) {
	var members map[string]json.RawMessage
	if json.Unmarshal(c.text, &members) != nil {
		c.refuse(c.field, "is %s: the config of %s must be an object", c.text, c.policy)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := join(c.field, name)
		target, ok := foldedMember(into, name)
		if !ok {
			c.unknownField(at, func() string {
				return unknownOf(string(c.policy), Closest(name, slices.Sorted(maps.Keys(into))))
			})
			continue
		}
		if wanted := readMember(members[name], target); wanted != "" {
			c.refuse(at, "is %s: it must be %s", members[name], wanted)
		}
	}
}

// foldedMember returns what into holds for a name, whatever its case.
func foldedMember(into map[string]any, name string) (target any, ok bool) {
	for known, target := range into {
		if strings.EqualFold(known, name) {
			return target, true
		}
	}
	return nil, false
}

// readMember reads a member's value. If it cannot, it says what is wanted.
func readMember(text json.RawMessage, target any) (wanted string) {
	var err error
	if period, ok := target.(*time.Duration); ok {
		var d durationpb.Duration
		if err = protojson.Unmarshal(text, &d); err == nil {
			*period = d.AsDuration()
		}
	} else {
		err = json.Unmarshal(text, target)
	}
	if err == nil {
		return ""
	}
	switch target.(type) {
	case *time.Duration:
		return `a duration in seconds, such as "1.5s"`
	case *uint32:
		return "a whole number from 0 to 4294967295"
	case *uint64:
		return "a whole number of at least 0"
	case *float64:
		return "a number"
	case *bool:
		return "true or false"
	case *string:
		return "a string"
	default:
		return "a list of policies, each an object of its name and its config"
	}
}

// readWRRLocality reads the config of the policy that chooses a locality.
func (c *jsonConfig) readWRRLocality() Policy {
	var list []map[string]json.RawMessage
	before := len(c.problems.list) + c.problems.more
	c.read(map[string]any{"childPolicy": &list})
	field := join(c.field, "childPolicy")
	var skipped []string
	for i, entry := range list {
		if len(entry) != 1 {
			c.refuse(fmt.Sprintf("%s[%d]", field, i), "names %d policies: it must name one", len(entry))
			return Policy{}
		}
		for name, text := range entry {
			if !c.available(PolicyName(name)) {
				skipped = append(skipped, strconv.Quote(name))
				continue
			}
			if len(skipped) > 0 {
				c.warn(field, "%s: not supported, and skipped", strings.Join(skipped, ", "))
			}
			child := c.namedPolicy(PolicyName(name), text, fmt.Sprintf("%s[%d].%s", field, i, name))
			return Policy{Name: PolicyWRRLocality, Child: &child}
		}
	}
	switch {
	case len(c.problems.list)+c.problems.more > before:
	case len(skipped) > 0:
		c.refuse(field, "holds no supported policy, only %s", strings.Join(skipped, ", "))
	default:
		c.refuse(field, "holds no policy")
	}
	return Policy{}
}

// readRoundRobin reads a config in which nothing can be configured. gRPC does not
// look at it.
func (c *jsonConfig) readRoundRobin() Policy {
	if string(bytes.TrimSpace(c.text)) != "null" && c.byHand {
		c.read(nil)
	}
	return Policy{Name: PolicyRoundRobin}
}

func (c *jsonConfig) readWeightedRoundRobin() Policy {
	w := defaultWeightedRoundRobin
	outOfBand, reporting := false, time.Duration(0)
	c.read(map[string]any{
		"enableOobLoadReport":     &outOfBand,
		"oobReportingPeriod":      &reporting,
		"blackoutPeriod":          &w.BlackoutPeriod,
		"weightExpirationPeriod":  &w.WeightExpirationPeriod,
		"weightUpdatePeriod":      &w.WeightUpdatePeriod,
		"errorUtilizationPenalty": &w.ErrorUtilizationPenalty,
	})
	if outOfBand {
		c.outOfBand(join(c.field, "enableOobLoadReport"))
	}
	return c.weighted(w, func(name string) string { return join(c.field, camel(name)) })
}

func (c *jsonConfig) readRingHash() Policy {
	least := ringSize{field: join(c.field, "minRingSize")}
	most := ringSize{field: join(c.field, "maxRingSize")}
	header := ""
	c.read(map[string]any{"minRingSize": &least.entries, "maxRingSize": &most.entries, "requestHashHeader": &header})
	if header != "" {
		c.hashHeader(strings.ToLower(header), join(c.field, "requestHashHeader"))
	}
	c.capped(most)
	return c.ringHash(least, most)
}

// hashHeader judges the header that gRPC would hash (gRFC A76).
func (c *jsonConfig) hashHeader(header, field string) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	switch {
	case header[0] != ':' && strings.Trim(header, letters) != "":
		c.refuse(field, "is %q, which cannot name a header", header)
	case strings.HasSuffix(header, "-bin"):
		c.refuse(field, "is %q: a binary header cannot be hashed", header)
	default:
		c.warn(field, "is not applied: the hash is the pick's own")
	}
}
