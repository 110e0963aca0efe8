package decode

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// typedStruct is either message that carries an extension by name, with its JSON config.
type typedStruct interface {
	proto.Message
	GetTypeUrl() string
	GetValue() *structpb.Struct
}

// newTypedStruct returns a new message of that name, or nil if it is no typedStruct.
func newTypedStruct(name protoreflect.FullName) typedStruct {
	for _, m := range []typedStruct{&xdsv3.TypedStruct{}, &udpav1.TypedStruct{}} {
		if nameOf(m) == name {
			return m
		}
	}
	return nil
}

// structPolicy reads a policy by its gRPC name, which ends the type URL (gRFC A52), or
// returns the name of one that is not available.
func (v policyValidator) structPolicy(config *anypb.Any, m typedStruct, field string) (p resource.Policy, unavailable string) {
	if !v.carries(config, m, field) {
		return resource.Policy{}, ""
	}
	url := m.GetTypeUrl()
	name := resource.PolicyName(url[strings.LastIndexByte(url, '/')+1:])
	if !v.available(name) {
		return resource.Policy{}, "TypedStruct " + strconv.Quote(string(name))
	}
	field += ".value"
	raw, err := json.Marshal(m.GetValue()) // null if it is absent
	if err != nil {
		v.reject(field, "contains NaN, or a Value without a kind")
		return resource.Policy{}, ""
	}
	return v.namedPolicy(name, raw, field), ""
}

func (v policyValidator) available(name resource.PolicyName) bool {
	if v.Policies == nil || name == resource.PolicyWRRLocality {
		return name == resource.PolicyWRRLocality
	}
	_, ok := v.Policies(string(name))
	return ok
}

func (v policyValidator) namedPolicy(name resource.PolicyName, config json.RawMessage, field string) resource.Policy {
	if name == resource.PolicyWRRLocality {
		return v.wrrLocality(config, field)
	}
	return v.configured(name, config, func(member string) string { return within(field, member) })
}

// configured validates a policy's JSON config. at returns the path of a member, or of the
// whole for the empty name; it is empty for what the decoder filled in.
func (v policyValidator) configured(name resource.PolicyName, config json.RawMessage, at func(member string) string) resource.Policy {
	p := resource.Policy{Name: name, Config: string(config)}
	var judge ConfigJudge
	if v.Policies != nil {
		judge, _ = v.Policies(string(name))
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
			v.reject(field, "%s", f.Text)
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
		v.reject(at, "is %s: the config of %s must be an object", config, resource.PolicyWRRLocality)
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
			v.reject(join(at, name), "is %s: it must be a list of policies, each an object of its name and its config", members[name])
			return resource.Policy{}
		}
	}
	child := v.firstAvailable(len(list), field, "", func(i int) (resource.Policy, string) {
		if len(list[i]) != 1 {
			v.reject(element(field, i), "names %d policies: it must name one", len(list[i]))
			return resource.Policy{}, ""
		}
		name := slices.Collect(maps.Keys(list[i]))[0]
		if !v.available(resource.PolicyName(name)) {
			return resource.Policy{}, strconv.Quote(name)
		}
		return v.namedPolicy(resource.PolicyName(name), list[i][name], element(field, i)+"."+name), ""
	})
	return resource.Policy{Name: resource.PolicyWRRLocality, Child: &child}
}
