package client

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestWrappedResources(t *testing.T) {
	wrapped := pack(&discoveryv3.Resource{Name: "a", Resource: cluster("a"), Version: "7"})
	r := decodeResponse(&discoveryv3.DiscoveryResponse{TypeUrl: cds.URL(), Resources: []*anypb.Any{wrapped}}, decode.Options{Origin: decode.FromServer}, nil)
	if r.nackDetail != "" || len(r.resources) != 1 || r.resources[0].item.Cluster == nil || r.resources[0].item.Key.Name != "a" {
		t.Errorf("%+v", r)
	}
}

func TestCachedItems(t *testing.T) {
	a, b := cluster("a"), cluster("b")
	it, err := decode.Resource(cds, a, decode.Options{Origin: decode.FromServer})
	noError(t, err)
	m := cachedItems{it}
	if got, ok := m.item(0, cds, a); !ok || got.Cluster != it.Cluster {
		t.Error("the same bytes are not found")
	}
	for what, known := range map[string]bool{
		"other bytes":   second(m.item(0, cds, b)),
		"another type":  second(m.item(0, eds, &anypb.Any{TypeUrl: eds.URL(), Value: a.GetValue()})),
		"another URL":   second(m.item(0, cds, &anypb.Any{TypeUrl: eds.URL(), Value: a.GetValue()})),
		"another place": second(m.item(1, cds, a)),
		"nothing":       second(cachedItems{{}}.item(0, cds, a)),
	} {
		if known {
			t.Errorf("%s are found", what)
		}
	}
}

func second[T any](_ T, ok bool) bool { return ok }

// The detail is a proto string.
func TestNACKDetailIsUTF8(t *testing.T) {
	var c nackDetail
	c.add(0, resource.Key{}, errors.New("\xff is no text"))
	c.add(1, resource.Key{Type: cds, Name: "a"}, errors.New("x"+strings.Repeat("é", maxResourceError)))
	if got := c.String(); !utf8.ValidString(got) || !strings.HasPrefix(got, "resources[0]: \uFFFD is no text; Cluster/a: xé") || len(got) > maxResourceError+100 {
		t.Errorf("the detail is %q", got)
	}
}

// FuzzDecode checks the invariants of a decoded response.
func FuzzDecode(f *testing.F) {
	add := func(resources ...*anypb.Any) {
		b, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: resources[0].GetTypeUrl(), VersionInfo: "1", Nonce: "n", Resources: resources})
		noError(f, err)
		f.Add(b)
	}
	add(cluster("a"), cluster("b"), badCluster("c"), cluster("a"))
	add(assignment("a", 1), assignment("", 1), cluster("a"))
	add(listener("l", "r"))
	add(routes("r", "a"))
	add(namedPolicy("a", "p"))
	add(pack(&discoveryv3.Resource{Name: "a", Resource: cluster("a")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &discoveryv3.DiscoveryResponse{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		for _, url := range []string{m.GetTypeUrl(), cds.URL(), eds.URL(), resource.TypeListener.URL(), resource.TypeRoutes.URL()} {
			m.TypeUrl = url
			o := decode.Options{Origin: decode.FromServer, Policies: func(string) *resource.PolicyTraits { return new(resource.PolicyTraits) }}
			r := decodeResponse(m, o, nil)
			bad := r.unnamed
			for i, got := range r.resources {
				it := got.item
				switch {
				case it.Key.Type != r.kind || it.Key.Name == "":
					t.Errorf("resource %d has the key %v", i, it.Key)
				case r.index[it.Key.Name] != i:
					t.Errorf("%v is at %d, not %d", it.Key, r.index[it.Key.Name], i)
				case got.err != nil:
					bad++
					if it.Raw != nil {
						t.Errorf("%v is invalid and has a value", it.Key)
					}
				case it.Raw == nil || it.Cluster == nil && it.Assignment == nil && it.Listener == nil && it.Routes == nil:
					t.Errorf("%v has no value", it.Key)
				}
			}
			if bad > 0 && r.nackDetail == "" {
				t.Errorf("%d are invalid, without a detail", bad)
			}
			if len(r.resources)+r.unnamed > len(m.GetResources()) {
				t.Errorf("%d and %d of %d", len(r.resources), r.unnamed, len(m.GetResources()))
			}
			// A detail that is not UTF-8 or too large ends the stream.
			if r.nackDetail != strings.ToValidUTF8(r.nackDetail, "") || len(r.nackDetail) > maxNACKDetail+1024 {
				t.Errorf("the detail is %q", r.nackDetail)
			}
			// Cached items equal decoded ones.
			known := make(cachedItems, len(m.GetResources()))
			for i, a := range m.GetResources() {
				it, err := decode.Resource(r.kind, a, o)
				if it.Key.Name = canonical(it.Key.Name); err == nil {
					known[i] = it
				}
			}
			if again := decodeResponse(m, o, known); again.nackDetail != r.nackDetail || len(again.resources) != len(r.resources) {
				t.Errorf("with cached items %+v, without %+v", again, r)
			}
		}
	})
}
