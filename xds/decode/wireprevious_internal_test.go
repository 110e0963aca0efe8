package decode

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// zone is a locality for tests: its endpoints have these ports.
type zone struct {
	name   string
	weight byte
	ports  []int
}

func (z zone) field() string {
	var list strings.Builder
	for _, port := range z.ports {
		list.WriteString(field(2, field(1, field(1, field(1, field(2, "10.0.0."+strconv.Itoa(port%10)), "\x18"+string(rune(port)))))))
	}
	return field(2, field(1, field(2, z.name)), list.String(), field(3, "\x08"+string(z.weight)))
}

func assignmentOf(zones ...zone) []byte {
	body := []byte(field(1, "orders"))
	for _, z := range zones {
		body = append(body, z.field()...)
	}
	return body
}

// TestVersionsShareEndpoints compares which endpoints of the previous version an assignment
// shares with which were equal.
func TestVersionsShareEndpoints(t *testing.T) {
	ports := func(from, to int) (list []int) {
		for p := from; p <= to; p++ {
			list = append(list, p)
		}
		return list
	}
	a, b := zone{"a", 1, ports(1, 50)}, zone{"b", 2, ports(51, 100)}
	before, err := One(resource.TypeAssignment, assignmentOf(a, b), rules[0])
	noError(t, err)
	o := rules[0]
	o.Previous = func(k resource.Key) resource.Item {
		if k != before.Key {
			t.Errorf("previous version of %v", k)
		}
		return before.Item
	}
	for _, c := range []struct {
		name                  string
		after                 []zone
		localities, endpoints int // that are shared
	}{
		{"nothing changed", []zone{a, b}, 2, 100},
		{"another weight", []zone{a, {"b", 3, b.ports}}, 1, 100},
		{"another order of localities", []zone{b, a}, 2, 100},
		{"another name", []zone{a, {"c", 2, b.ports}}, 1, 50},
		{"a locality less", []zone{b}, 1, 50},
		{"a locality more", []zone{{"c", 1, ports(101, 103)}, a, b}, 2, 100},
		{"an endpoint less", []zone{a, {"b", 2, slices.Delete(slices.Clone(b.ports), 20, 21)}}, 1, 99},
		{"the first less", []zone{a, {"b", 2, b.ports[1:]}}, 1, 99},
		{"the last less", []zone{a, {"b", 2, b.ports[:49]}}, 1, 99},
		{"an endpoint more", []zone{a, {"b", 2, slices.Insert(slices.Clone(b.ports), 20, 120)}}, 1, 100},
		{"one more at each end", []zone{{"a", 1, slices.Concat([]int{120}, a.ports)}, {"b", 2, append(slices.Clone(b.ports), 121)}}, 0, 100},
		{"two others", []zone{a, {"b", 2, slices.Replace(slices.Replace(slices.Clone(b.ports), 10, 11, 120), 30, 31, 121)}}, 1, 98},
		{"two others and one more between", []zone{a, {"b", 2, slices.Insert(slices.Replace(slices.Replace(slices.Clone(b.ports), 10, 11, 120), 30, 31, 121), 20, 122)}}, 1, 50 + 10 + 9 + 19},
		{"moved to the other locality", []zone{{"a", 1, append(slices.Clone(a.ports), 51)}, {"b", 2, b.ports[1:]}}, 0, 99},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := compareDecoders(t, assignmentOf(c.after...), o)
			if d == nil {
				t.Fatal("rejected")
			}
			localities, endpoints := 0, 0
			for _, l := range d.Assignment.Localities {
				if slices.Contains(before.Assignment.Localities, l) {
					localities++
				}
				for _, e := range l.Endpoints {
					if slices.Contains(before.Assignment.Localities[0].Endpoints, e) || slices.Contains(before.Assignment.Localities[1].Endpoints, e) {
						endpoints++
					}
				}
			}
			if localities != c.localities || endpoints != c.endpoints {
				t.Errorf("%d localities and %d endpoints are shared, want %d and %d", localities, endpoints, c.localities, c.endpoints)
			}
		})
	}
	t.Run("an address twice", func(t *testing.T) {
		for _, zones := range [][]zone{
			{a, {"b", 2, append(slices.Clone(b.ports), 51)}},
			{a, {"b", 2, append(slices.Clone(b.ports), 1)}},
			{a, {"b", 2, append(slices.Clone(b.ports), 120, 120)}},
			{a, {"b", 2, b.ports}, {"c", 1, b.ports[:1]}},
			{a, a},
		} {
			if compareDecoders(t, assignmentOf(zones...), o) != nil {
				t.Errorf("%v is accepted", zones)
			}
		}
	})
}

// TestUnknownFieldsAreNotShared: an endpoint that is shared would not be read, and its unknown
// fields not be reported.
func TestUnknownFieldsAreNotShared(t *testing.T) {
	o := rules[3]
	body := []byte(field(1, "orders") + field(2, field(1, field(2, "zone")), field(2, hosted(field(15, ""))), field(3, "\x08\x01")))
	before, err := Resource(resource.TypeAssignment, carry(body), o)
	if err != nil || before.Shareable {
		t.Fatalf("%+v, %v", before, err)
	}
	o.Previous = func(resource.Key) resource.Item { return before }
	compareVersions(t, body, body, o)
}
