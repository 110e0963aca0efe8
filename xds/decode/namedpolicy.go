package decode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
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
func (v policyValidator) structPolicy(config *anypb.Any, m typedStruct, field string) (p resource.Policy, unknown string) {
	if !v.carries(config, m, field) {
		return resource.Policy{}, ""
	}
	url := m.GetTypeUrl()
	name := resource.PolicyName(url[strings.LastIndexByte(url, '/')+1:])
	if !v.available(name) {
		return resource.Policy{}, "TypedStruct " + strconv.Quote(string(name))
	}
	field += ".value"
	raw, err := json.Marshal(m.GetValue()) // null where there is none
	if err != nil {
		v.refuse(field, "cannot be written as JSON: it holds a number that is none, or a value that is absent")
		return resource.Policy{}, ""
	}
	return v.namedPolicy(name, raw, field), ""
}

// available reports whether clusters can choose a policy of gRPC's name.
func (v policyValidator) available(name resource.PolicyName) bool {
	if name == resource.PolicyWRRLocality {
		return true
	}
	if v.policies == nil {
		return false
	}
	_, ok := v.policies(string(name))
	return ok
}

// namedPolicy reads the JSON config of a policy that is available.
func (v policyValidator) namedPolicy(name resource.PolicyName, config json.RawMessage, field string) resource.Policy {
	if name == resource.PolicyWRRLocality {
		return v.wrrLocality(config, field)
	}
	return v.configured(name, config, func(member string) string {
		if member == "" {
			return field
		}
		return join(field, member)
	})
}

// configured lets a policy judge its JSON config. at returns the path of a member, or
// of the whole for the empty name; it is empty for what the decoder filled in.
func (v policyValidator) configured(name resource.PolicyName, config json.RawMessage, at func(member string) string) resource.Policy {
	p := resource.Policy{Name: name, Config: string(config)}
	var judge ConfigJudge
	if v.policies != nil {
		judge, _ = v.policies(string(name))
	}
	if judge == nil {
		return p
	}
	var findings []resource.ConfigFinding
	p.Config, findings = judge(config)
	for _, f := range findings {
		field := at(f.Member)
		switch {
		case f.ByHand && !v.byHand:
		case f.Kind == resource.FindingUnknown:
			v.unknownField(field, func() string { return unknownOf(string(name), text.Closest(f.Member, f.Known)) })
		case f.Kind == resource.FindingInvalid:
			v.refuse(field, "%s", f.Text)
		case field != "":
			v.warn(field, "%s", f.Text)
		}
	}
	return p
}

// wrrLocality reads the config of the policy that chooses a locality. As in gRPC, the
// case of a member's name does not count, and null is absent.
func (v policyValidator) wrrLocality(config json.RawMessage, at string) resource.Policy {
	field := join(at, "childPolicy")
	var members map[string]json.RawMessage
	if json.Unmarshal(config, &members) != nil {
		v.refuse(at, "is %s: the config of %s must be an object", config, resource.PolicyWRRLocality)
		return resource.Policy{}
	}
	var list []map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case !strings.EqualFold(name, "childPolicy"):
			v.unknownField(join(at, name), func() string {
				return unknownOf(string(resource.PolicyWRRLocality), text.Closest(name, []string{"childPolicy"}))
			})
		case json.Unmarshal(members[name], &list) != nil:
			v.refuse(join(at, name), "is %s: it must be a list of policies, each an object of its name and its config", members[name])
			return resource.Policy{}
		}
	}
	var skipped []string
	for i, entry := range list {
		if len(entry) != 1 {
			v.refuse(fmt.Sprintf("%s[%d]", field, i), "names %d policies: it must name one", len(entry))
			return resource.Policy{}
		}
		for name, config := range entry {
			if !v.available(resource.PolicyName(name)) {
				skipped = append(skipped, strconv.Quote(name))
				continue
			}
			if len(skipped) > 0 {
				v.warn(field, "%s: not supported, and skipped", strings.Join(skipped, ", "))
			}
			child := v.namedPolicy(resource.PolicyName(name), config, fmt.Sprintf("%s[%d].%s", field, i, name))
			return resource.Policy{Name: resource.PolicyWRRLocality, Child: &child}
		}
	}
	if len(skipped) > 0 {
		v.refuse(field, "holds no supported policy, only %s", strings.Join(skipped, ", "))
	} else {
		v.refuse(field, "holds no policy")
	}
	return resource.Policy{}
}
