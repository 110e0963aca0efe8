package acceptance_test

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// mutation changes messages at random, by a seed.
type mutation struct {
	*rand.Rand
	anys []*anypb.Any // values for an Any
}

// texts are the values for strings: names with a meaning, valid and invalid patterns.
var texts = []string{
	"", "a", "x", "known", "unknown", "f", "*", "(", "a*", "/a", "io.grpc.channel_id", "x-bin", ":path", "10.0.0.0", "::1",
	"envoy.transport_sockets.tls", "raw_buffer", "raw_buffer", "grpc-x", "p", "internal,unavailable", `\1`, "a{1001}",
}

var numbers = []uint64{0, 1, 2, 7, 33, 100, 1 << 31, 1<<32 - 1}

// skipped are fields that grpc-go uses only if an environment variable is set.
var skipped = map[protoreflect.FullName]bool{
	"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.system_root_certs": true,
}

// judged are the fields with a rule. They are changed more often than the others.
var judged = []protoreflect.Name{
	"match", "prefix", "path", "path_separated_prefix", "safe_regex", "regex", "headers", "query_parameters", "exact", "suffix", "contains",
	"exact_match", "prefix_match", "suffix_match", "contains_match", "safe_regex_match", "string_match", "range_match", "present_match",
	"cluster", "cluster_header", "weighted_clusters", "clusters", "weight", "cluster_specifier_plugin", "cluster_specifier_plugins", "is_optional",
	"hash_policy", "regex_rewrite", "pattern", "retry_policy", "num_retries", "retry_back_off", "base_interval", "max_interval", "seconds",
	"typed_per_filter_config", "redirect", "non_forwarding_action", "route", "rds", "route_config", "config_source", "self", "ads", "route_config_name",
	"http_filters", "name", "typed_config", "xff_num_trusted_hops", "original_ip_detection_extensions", "api_listener",
	"filters", "filter_chains", "default_filter_chain", "filter_chain_match", "listener_filters", "use_original_dst", "address",
	"destination_port", "server_names", "transport_protocol", "application_protocols", "source_type", "source_ports", "prefix_ranges",
	"source_prefix_ranges", "address_prefix", "prefix_len", "transport_socket", "require_sni", "require_client_certificate", "ocsp_staple_policy",
	"common_tls_context", "tls_params", "custom_handshaker", "tls_certificates", "tls_certificate_sds_secret_configs",
	"tls_certificate_provider_instance", "tls_certificate_certificate_provider_instance", "validation_context",
	"combined_validation_context", "default_validation_context", "validation_context_certificate_provider_instance",
	"ca_certificate_provider_instance", "instance_name", "match_subject_alt_names", "verify_certificate_spki", "verify_certificate_hash",
	"require_signed_certificate_timestamp", "crl", "custom_validator_config", "value",
}

func (r *mutation) field(fields protoreflect.FieldDescriptors) protoreflect.FieldDescriptor {
	if r.IntN(4) > 0 {
		var list []protoreflect.FieldDescriptor
		for i := range fields.Len() {
			if slices.Contains(judged, fields.Get(i).Name()) {
				list = append(list, fields.Get(i))
			}
		}
		if len(list) > 0 {
			return list[r.IntN(len(list))]
		}
	}
	return fields.Get(r.IntN(fields.Len()))
}

// change changes one thing in m. Each type of message in m has the same chance.
func (r *mutation) change(m protoreflect.Message) {
	all := map[protoreflect.FullName][]protoreflect.Message{}
	within(m, all)
	patching := r.IntN(4) > 0
	var types []protoreflect.FullName
	for name := range all {
		if !patching || len(patches[name]) > 0 {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	if len(types) == 0 {
		return
	}
	list := all[types[r.IntN(len(types))]]
	m = list[r.IntN(len(list))]
	if patching {
		r.patch(m)
		return
	}
	fields := m.Descriptor().Fields()
	if fields.Len() == 0 {
		return
	}
	fd := r.field(fields)
	// The name of a Listener must stay.
	if skipped[fd.FullName()] || fd.Name() == "name" && m.Descriptor().FullName() == "envoy.config.listener.v3.Listener" {
		return
	}
	if m.Has(fd) && r.IntN(3) == 0 {
		m.Clear(fd)
		return
	}
	r.set(m, fd, 2)
}

// within adds m and all messages in it to all, by type.
func within(m protoreflect.Message, all map[protoreflect.FullName][]protoreflect.Message) {
	all[m.Descriptor().FullName()] = append(all[m.Descriptor().FullName()], m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind || fd.IsMap() || fd.Message().FullName() == "google.protobuf.Any":
		case fd.IsList():
			for i := range v.List().Len() {
				within(v.List().Get(i).Message(), all)
			}
		default:
			within(v.Message(), all)
		}
		return true
	})
}

// set gives a field a value.
func (r *mutation) set(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Kind() == protoreflect.MessageKind && fd.MapKey().Kind() == protoreflect.StringKind {
			v := m.NewField(fd)
			v.Map().Set(protoreflect.ValueOfString("f").MapKey(), r.message(v.Map().NewValue().Message(), depth))
			m.Set(fd, v)
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		if n := list.Len(); n > 0 {
			i, k := r.IntN(n), r.IntN(n)
			switch r.IntN(4) {
			case 0:
				list.Append(list.Get(i)) // twice the same
				return
			case 1:
				a, b := list.Get(i), list.Get(k)
				list.Set(i, b)
				list.Set(k, a)
				return
			}
		}
		if fd.Kind() == protoreflect.MessageKind {
			list.Append(r.message(list.NewElement().Message(), depth))
		} else {
			list.Append(r.scalar(fd))
		}
	case fd.Kind() == protoreflect.MessageKind:
		m.Set(fd, r.message(m.NewField(fd).Message(), depth))
	default:
		m.Set(fd, r.scalar(fd))
	}
}

// message sets fields of a new message.
func (r *mutation) message(m protoreflect.Message, depth int) protoreflect.Value {
	if a, ok := m.Interface().(*anypb.Any); ok {
		proto.Merge(a, r.anys[r.IntN(len(r.anys))])
		return protoreflect.ValueOfMessage(m)
	}
	fields := m.Descriptor().Fields()
	for range r.IntN(3) {
		if fields.Len() > 0 && depth > 0 {
			if fd := r.field(fields); !skipped[fd.FullName()] {
				r.set(m, fd, depth-1)
			}
		}
	}
	return protoreflect.ValueOfMessage(m)
}

func (r *mutation) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	n := numbers[r.IntN(len(numbers))]
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n % 10))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n) - 1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("b"))
	default:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	}
}
