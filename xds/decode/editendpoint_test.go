package decode_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// listed describes an assignment: localities with priority and weight, and their endpoints.
func listed(t *testing.T, raw []byte) string {
	t.Helper()
	d, err := decode.One(resource.TypeAssignment, raw, decode.Options{Format: decode.FormatProtobuf, Name: "orders"})
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	var groups []string
	for _, l := range d.Assignment.Localities {
		var b strings.Builder
		fmt.Fprintf(&b, "%s/%s p%d w%d:", l.ID.Region, l.ID.Zone, l.Priority, l.Weight)
		for _, e := range l.Endpoints {
			fmt.Fprintf(&b, " %s", strings.Join(e.Addresses, "+"))
			if e.Weight != 1 {
				fmt.Fprintf(&b, "*%d", e.Weight)
			}
			if e.Hostname != "" {
				b.WriteString("=" + e.Hostname)
			}
			if e.Health != resource.HealthUnknown {
				b.WriteString("!" + e.Health.String())
			}
			if e.TTL != 0 {
				fmt.Fprintf(&b, "~%v", e.TTL)
			}
			if e.HashKey != "" {
				b.WriteString("#" + e.HashKey)
			}
		}
		groups = append(groups, b.String())
	}
	return strings.Join(groups, "; ")
}

// stored returns the Raw of a pushed assignment; of an empty text, nil.
func stored(t *testing.T, body string) []byte {
	t.Helper()
	if body == "" {
		return nil
	}
	f := decode.FormatText
	if strings.HasPrefix(body, "{") {
		f = decode.FormatYAML
	}
	d, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Format: f, Name: "orders"})
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return d.Raw
}

// at returns an endpoint in YAML, with other fields.
func at(address string, more ...string) string {
	return fmt.Sprintf("{%sendpoint: {address: {socket_address: {address: %s, port_value: 80}}}}", strings.Join(append(more, ""), ", "), address)
}

// group returns a locality in YAML. A weight of 0 is absent.
func group(zone string, priority, weight int, endpoints ...string) string {
	w := ""
	if weight > 0 {
		w = fmt.Sprintf("load_balancing_weight: %d, ", weight)
	}
	return fmt.Sprintf("{locality: {region: r, zone: %s}, priority: %d, %slb_endpoints: [%s]}", zone, priority, w, strings.Join(endpoints, ", "))
}

func groups(all ...string) string { return "{endpoints: [" + strings.Join(all, ", ") + "]}" }

func TestSetEndpoint(t *testing.T) {
	inZone := func(zone string) *resource.Locality { return &resource.Locality{Region: "r", Zone: zone} }
	for name, c := range map[string]struct {
		before, address string
		edit            decode.EndpointEdit
		after           string
		added           bool
		err             string
	}{
		"the first": {address: "1.2.3.4:80", after: "/ p0 w1: 1.2.3.4:80", added: true},
		"the first, with all": {
			address: "[::1]:80", edit: decode.EndpointEdit{Weight: new(uint32(3)), Health: new("HEALTHY"), Hostname: new("h"), Locality: inZone("a"), Priority: new(uint32(0))},
			after: "r/a p0 w1: [::1]:80*3=h!HEALTHY", added: true,
		},
		"another one":              {before: groups(group("a", 0, 7, at("a"))), address: "b:80", after: "r/a p0 w7: a:80 b:80", added: true},
		"another port":             {before: groups(group("a", 0, 7, at("a"))), address: "a:81", after: "r/a p0 w7: a:80 a:81", added: true},
		"one that is there":        {before: groups(group("a", 0, 7, at("a"))), address: "a:80", after: "r/a p0 w7: a:80"},
		"of two localities":        {before: groups(group("a", 0, 7, at("a")), group("b", 0, 1, at("b"))), address: "b:80", edit: decode.EndpointEdit{Weight: new(uint32(2))}, after: "r/a p0 w7: a:80; r/b p0 w1: b:80*2"},
		"its fields stay":          {before: groups(group("a", 0, 7, at("a", "load_balancing_weight: 5", "health_status: DRAINING", `metadata: {filter_metadata: {envoy.lb: {hash_key: k}}}`))), address: "a:80", edit: decode.EndpointEdit{Health: new("UNKNOWN")}, after: "r/a p0 w7: a:80*5#k"},
		"an address of IPv6":       {before: "[2001:db8::1]:80", address: "[2001:0DB8:0::1]:80", edit: decode.EndpointEdit{Weight: new(uint32(2))}, after: "/ p0 w1: [2001:db8::1]:80*2"},
		"an additional address":    {before: groups(group("a", 0, 1, `{endpoint: {address: {socket_address: {address: a, port_value: 80}}, additional_addresses: [{address: {socket_address: {address: b, port_value: 80}}}]}}`)), address: "b:80", edit: decode.EndpointEdit{Weight: new(uint32(2))}, after: "r/a p0 w1: a:80+b:80*2"},
		"no hostname":              {before: groups(group("a", 0, 1, `{endpoint: {hostname: h, address: {socket_address: {address: a, port_value: 80}}}}`)), address: "a:80", edit: decode.EndpointEdit{Hostname: new("")}, after: "r/a p0 w1: a:80"},
		"into a locality":          {before: groups(group("a", 0, 7, at("a")), group("b", 0, 1)), address: "c:80", edit: decode.EndpointEdit{Locality: inZone("b")}, after: "r/a p0 w7: a:80; r/b p0 w1: c:80", added: true},
		"into a priority":          {before: groups(group("a", 0, 7, at("a")), group("a", 1, 1)), address: "c:80", edit: decode.EndpointEdit{Priority: new(uint32(1))}, after: "r/a p0 w7: a:80; r/a p1 w1: c:80", added: true},
		"to another locality":      {before: groups(group("a", 0, 7, at("a", "load_balancing_weight: 5"), at("b")), group("b", 0, 1)), address: "a:80", edit: decode.EndpointEdit{Locality: inZone("b")}, after: "r/a p0 w7: b:80; r/b p0 w1: a:80*5"},
		"to a new locality":        {before: groups(group("a", 0, 0, at("a"), at("b"))), address: "b:80", edit: decode.EndpointEdit{Locality: inZone("b")}, after: "r/a p0 w1: a:80; r/b p0 w1: b:80"},
		"to a new priority":        {before: groups(group("a", 0, 0, at("a"), at("b")), group("b", 0, 0, at("c"))), address: "b:80", edit: decode.EndpointEdit{Priority: new(uint32(1))}, after: "r/a p0 w1: a:80; r/b p0 w1: c:80; r/a p1 w1: b:80"},
		"in its own priority":      {before: groups(group("a", 0, 1, at("a")), group("a", 1, 1, at("b"))), address: "b:80", edit: decode.EndpointEdit{Locality: inZone("a")}, after: "r/a p0 w1: a:80; r/a p1 w1: b:80"},
		"a ttl":                    {before: groups(group("a", 0, 7, at("a", `metadata: {filter_metadata: {envoy.lb: {hash_key: k}, lbd: {x: y}}}`))), address: "a:80", edit: decode.EndpointEdit{TTL: new(90 * time.Second)}, after: "r/a p0 w7: a:80~1m30s#k"},
		"another ttl":              {before: groups(group("a", 0, 7, at("a", `metadata: {filter_metadata: {lbd: {ttl: 1s}}}`))), address: "a:80", edit: decode.EndpointEdit{TTL: new(time.Hour)}, after: "r/a p0 w7: a:80~1h0m0s"},
		"a ttl that stays":         {before: groups(group("a", 0, 7, at("a", `metadata: {filter_metadata: {lbd: {ttl: 1s}}}`))), address: "a:80", after: "r/a p0 w7: a:80~1s"},
		"no ttl":                   {before: groups(group("a", 0, 7, at("a", `metadata: {filter_metadata: {lbd: {ttl: 1s}}}`))), address: "a:80", edit: decode.EndpointEdit{TTL: new(time.Duration)}, after: "r/a p0 w7: a:80"},
		"no ttl of others":         {before: groups(group("a", 0, 7, at("a", `metadata: {filter_metadata: {envoy.lb: {hash_key: k}}}`))), address: "a:80", edit: decode.EndpointEdit{TTL: new(time.Duration)}, after: "r/a p0 w7: a:80#k"},
		"a short ttl":              {address: "a:80", edit: decode.EndpointEdit{TTL: new(999 * time.Millisecond)}, err: "ttl: 999ms is not from 1s to 1h0m0s in whole milliseconds"},
		"a long ttl":               {address: "a:80", edit: decode.EndpointEdit{TTL: new(time.Hour + time.Millisecond)}, err: "ttl: 1h0m0.001s is not from 1s to 1h0m0s in whole milliseconds"},
		"the empty locality":       {before: groups(group("a", 0, 0, at("a"))), address: "b:80", edit: decode.EndpointEdit{Locality: &resource.Locality{}}, after: "r/a p0 w1: a:80; / p0 w1: b:80", added: true},
		"two localities":           {before: groups(group("a", 0, 7, at("a")), group("b", 0, 1)), address: "c:80", err: "locality: required: the assignment has several; there are r/a, r/b"},
		"two priorities":           {before: groups(group("a", 0, 7, at("a")), group("a", 1, 1)), address: "c:80", edit: decode.EndpointEdit{Locality: inZone("a")}, err: "priority: required: locality r/a is in several priorities; there are r/a (priority 0), r/a (priority 1)"},
		"a locality with weight":   {before: groups(group("a", 0, 7, at("a"))), address: "c:80", edit: decode.EndpointEdit{Locality: inZone("b")}, err: "locality: r/b is not in priority 0, and a new one would need a weight, because others have one; push the assignment with it; there are r/a"},
		"a locality of a priority": {before: groups(group("a", 0, 0, at("a")), group("b", 1, 0, at("b"))), address: "c:80", edit: decode.EndpointEdit{Locality: inZone("c")}, err: "priority: required: locality r/c is new, and there are several priorities; there are r/a (priority 0), r/b (priority 1)"},
		"a priority of localities": {before: groups(group("a", 0, 0, at("a")), group("b", 0, 0, at("b"))), address: "c:80", edit: decode.EndpointEdit{Priority: new(uint32(1))}, err: "locality: required: the assignment has several; there are r/a, r/b"},
		"no weight":                {address: "a:80", edit: decode.EndpointEdit{Weight: new(uint32(0))}, err: "weight: must be at least 1; to take no new picks, set health to DRAINING"},
		"no health":                {address: "a:80", edit: decode.EndpointEdit{Health: new("ILL")}, err: `health: "ILL" is no health status; there are UNKNOWN, HEALTHY, UNHEALTHY, DRAINING, TIMEOUT, DEGRADED`},
		"no port":                  {address: "a", err: `address: "a" is no address and port, such as 10.0.0.7:8080 or [2001:db8::7]:8080`},
		"port 0":                   {address: "a:0", err: `address: "a:0" has no valid port, 1 to 65535`},
		"a port beyond":            {address: "a:65536", err: `address: "a:65536" has no valid port, 1 to 65535`},
		"a mistyped address":       {address: "10.0.0:80", err: `address: is "10.0.0", which is neither an IP address nor a host name`},
	} {
		t.Run(name, func(t *testing.T) {
			raw, added, err := decode.SetEndpoint(stored(t, c.before), true, "orders", c.address, &c.edit)
			if slow, _, _ := decode.SetEndpoint(stored(t, c.before), false, "orders", c.address, &c.edit); !bytes.Equal(slow, raw) {
				t.Errorf("without canonical hosts: %x, not %x", slow, raw)
			}
			if c.err != "" {
				if own, ok := errors.AsType[*decode.EndpointError](err); !ok || own.Error() != c.err {
					t.Errorf("got  %v\nwant %s", err, c.err)
				}
				return
			}
			noError(t, err)
			if after := listed(t, raw); after != c.after || added != c.added {
				t.Errorf("got  %s, %v\nwant %s, %v", after, added, c.after, c.added)
			}
		})
	}
}

func TestRemoveEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		before, addresses, after string
		removed                  int
	}{
		"one of two":       {groups(group("a", 0, 7, at("a"), at("b"))), "a:80", "r/a p0 w7: b:80", 1},
		"the last":         {groups(group("a", 0, 7, at("a")), group("b", 1, 1, at("b"))), "a:80", "r/a p0 w7:; r/b p1 w1: b:80", 1},
		"without a weight": {groups(group("a", 0, 0, at("a")), group("b", 1, 0, at("b"))), "a:80", "r/a p0 w1:; r/b p1 w1: b:80", 1},
		"some":             {groups(group("a", 0, 7, at("a"), at("b"), at("c")), group("b", 1, 1, at("d"), at("e"))), "e:80 x:80 a:80 b:80", "r/a p0 w7: c:80; r/b p1 w1: d:80", 3},
		"another":          {groups(group("a", 0, 7, at("a"))), "b:80", "r/a p0 w7: a:80", 0},
	} {
		t.Run(name, func(t *testing.T) {
			raw, removed, err := decode.RemoveEndpoints(stored(t, c.before), true, strings.Fields(c.addresses)...)
			noError(t, err)
			if after := listed(t, raw); after != c.after || removed != c.removed {
				t.Errorf("got  %s, %v\nwant %s, %v", after, removed, c.after, c.removed)
			}
		})
	}
	if _, _, err := decode.RemoveEndpoints(nil, true, "80"); err == nil {
		t.Error("an address without port is accepted")
	}
	if _, _, err := decode.RemoveEndpoints([]byte{1}, true, "a:80"); err == nil || errors.As(err, new(*decode.EndpointError)) {
		t.Errorf("no protobuf: %v", err)
	}
}

// Fields that protobuf does not know, or not of that type, are before or behind a list; a tag that is longer than it must
// be, and a field within a list, are written again.
func TestEditsUnusualBytes(t *testing.T) {
	list := stored(t, groups(group("a", 0, 7, at("a"), at("b"), at("c")), group("b", 0, 1, at("d"))))
	odd := map[string][]byte{
		"a list that is a number":        append(slices.Clone(list), 0x10, 1),
		"a name that is a number":        append([]byte{0x08, 1}, list...),
		"another name at the end":        append(slices.Clone(list), 0x0a, 6, 'o', 'r', 'd', 'e', 'r', 's'),
		"an unknown field":               append(slices.Clone(list), 0xa2, 6, 1, 'x'),
		"an unknown group":               append(slices.Clone(list), 0xa3, 6, 0xa4, 6),
		"a long tag":                     append(slices.Clone(list), 0x92, 0, 0),
		"a field between two localities": append(slices.Clone(list), 0x10, 1, 0x12, 0),
	}
	body := []byte{0x18, 2, 0x12, 0, 0x10, 1} // of a locality: its weight, which has another type, an endpoint, a number
	odd["a locality of such fields"] = append(append(slices.Clone(list), 0x12, byte(len(body))), body...)
	for name, raw := range odd {
		t.Run(name, func(t *testing.T) {
			for _, canonical := range []bool{false, true} {
				rest, removed, err := decode.RemoveEndpoints(raw, canonical, "b:80")
				noError(t, err)
				again, added, err := decode.SetEndpoint(rest, canonical, "orders", "c:80", &decode.EndpointEdit{Weight: new(uint32(2))})
				noError(t, err)
				m := &endpointv3.ClusterLoadAssignment{}
				noError(t, proto.Unmarshal(again, m))
				if e := m.GetEndpoints()[0].GetLbEndpoints(); removed != 1 || added || len(e) != 2 || e[1].GetLoadBalancingWeight().GetValue() != 2 {
					t.Errorf("%d removed, %v added: %v", removed, added, e)
				}
				before := &endpointv3.ClusterLoadAssignment{}
				noError(t, proto.Unmarshal(raw, before))
				if !bytes.Equal(m.ProtoReflect().GetUnknown(), before.ProtoReflect().GetUnknown()) {
					t.Errorf("the unknown fields are %x", m.ProtoReflect().GetUnknown())
				}
			}
		})
	}
}

// normal reports whether an assignment is as protobuf writes it.
func normal(t *testing.T, raw []byte) bool {
	t.Helper()
	m := &endpointv3.ClusterLoadAssignment{}
	noError(t, proto.Unmarshal(raw, m))
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	noError(t, err)
	return string(again) == string(raw)
}

// What an edit returns is canonical, and the same edit again changes nothing; without the endpoint, the
// assignment is as before, but for an empty locality.
func FuzzEditEndpoint(f *testing.F) {
	for _, before := range []string{"", "a:80", "[::1]:80 2 r/a\nb:80 r/b", groups(group("a", 0, 7, at("a")), group("a", 1, 1))} {
		var raw []byte
		if before != "" {
			format := decode.FormatText
			if before[0] == '{' {
				format = decode.FormatYAML
			}
			d, err := decode.One(resource.TypeAssignment, []byte(before), decode.Options{Format: format, Name: "orders"})
			noError(f, err)
			raw = d.Raw
		}
		f.Add(raw, "a:80", uint32(2), "DRAINING", "h", "r", "a", uint32(0), uint8(0xff))
		f.Add(raw, "[::1]:80", uint32(0), "", "", "", "", uint32(1), uint8(0))
		f.Add(raw, "c:80", uint32(1), "HEALTHY", "", "", "b", uint32(1), uint8(0x10))
	}
	f.Fuzz(func(t *testing.T, raw []byte, address string, weight uint32, health, hostname, region, zone string, priority uint32, which uint8) {
		given := func(bit int) bool { return which&(1<<bit) != 0 }
		var edit decode.EndpointEdit
		if given(0) {
			edit.Weight = &weight
		}
		if given(1) {
			edit.Health = &health
		}
		if given(2) {
			edit.Hostname = &hostname
		}
		if given(3) {
			edit.Locality = &resource.Locality{Region: region, Zone: zone}
		}
		if given(5) {
			edit.TTL = new(time.Duration(weight) * time.Millisecond)
		}
		if given(4) {
			edit.Priority = &priority
		}
		o := decode.Options{Format: decode.FormatProtobuf, Name: "orders", Lenient: true}
		before, err := decode.One(resource.TypeAssignment, raw, o)
		if err != nil {
			return // a store has only what was accepted
		}
		after, added, err := decode.SetEndpoint(before.Raw, true, "orders", address, &edit)
		if slow, _, other := decode.SetEndpoint(before.Raw, false, "orders", address, &edit); string(slow) != string(after) || fmt.Sprint(other) != fmt.Sprint(err) {
			t.Fatalf("with canonical hosts %x, %v; else %x, %v", after, err, slow, other)
		}
		if err != nil {
			return
		}
		if normal(t, before.Raw) && !normal(t, after) {
			t.Fatalf("not canonical: %x", after)
		}
		d, err := decode.One(resource.TypeAssignment, after, o)
		if err != nil {
			expected(t, err)
			return
		}
		if again, twice, err := decode.SetEndpoint(d.Raw, true, "orders", address, &edit); err != nil || twice || string(again) != string(d.Raw) {
			t.Fatalf("the same edit again: %v, %v", twice, err)
		}
		rest, removed, err := decode.RemoveEndpoints(d.Raw, true, address)
		if err != nil || removed != 1 {
			t.Fatalf("not removed: %v", err)
		}
		if added && listed(t, rest) != listed(t, before.Raw) && len(d.Assignment.Localities) == len(before.Assignment.Localities) {
			t.Fatalf("without the endpoint it is not as before: %s instead of %s", listed(t, rest), listed(t, before.Raw))
		}
	})
}
