package client

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// resourceTypes are the types that the client requests, in the order in which it sends
// several pending requests: a type after those that it depends on.
var resourceTypes = [...]resource.Type{resource.TypeCluster, resource.TypeAssignment, resource.TypeListener, resource.TypeRoutes}

type response struct {
	typeURL string
	kind    resource.Type // empty for an unknown type
	version string
	nonce   string
	// resources are the valid and the invalid resources, by canonical name. Of several
	// with the same name, it has the last one.
	resources []receivedResource
	index     map[string]int // in resources, by name; -1 if the response has only an error for the name
	unnamed   int            // invalid resources without a name
	// errors are those that the server reports for single resources (xRFC TP3), by canonical
	// name and without Server.
	errors []ResourceError
	// nackDetail lists what is invalid, for the server; empty if nothing is.
	nackDetail string
	// unread is set if there was no memory for the resources, which are unknown then.
	unread  bool
	release func() // the memory for them, when they are in use; nil for an unread response
}

type receivedResource struct {
	item resource.Item // only the Key if err is set
	err  error
}

// complete reports whether the protocol requires that a response has all requested
// resources that exist, so that an absent one was deleted.
func (r *response) complete() bool {
	return r.kind == resource.TypeListener || r.kind == resource.TypeCluster
}

// typeOfURL returns the type with a URL; empty for an unknown one.
func typeOfURL(url string) resource.Type {
	for _, t := range resourceTypes {
		if t.URL() == url {
			return t
		}
	}
	return ""
}

// cachedItems has a value with the same hash for each resource of a response, or the zero Item.
type cachedItems []resource.Item

// item returns the cached value of the i-th resource if it has the same bytes.
func (c cachedItems) item(i int, t resource.Type, a *anypb.Any) (resource.Item, bool) {
	if i >= len(c) || c[i].Key.Type != t || a.GetTypeUrl() != t.URL() || !bytes.Equal(c[i].Raw, a.GetValue()) {
		return resource.Item{}, false
	}
	return c[i], true
}

// decodeResponse decodes and validates the resources that are not cached. It does not
// fail: the response has the errors.
func decodeResponse(m *discoveryv3.DiscoveryResponse, o decode.Options, cached cachedItems) *response {
	r := &response{kind: typeOfURL(m.GetTypeUrl()), typeURL: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce()}
	if r.kind == "" {
		return r
	}
	r.index = make(map[string]int, len(m.GetResources()))
	var detail nackDetail
	for i, a := range m.GetResources() {
		item, ok := cached.item(i, r.kind, a)
		var err error
		if !ok {
			item, err = decode.Resource(r.kind, a, o) // a panic is an error
			item.Key.Name = canonical(item.Key.Name)
		}
		if err != nil {
			detail.add(i, item.Key, err)
		}
		name := item.Key.Name
		if name == "" {
			r.unnamed++
			continue
		}
		if at, duplicate := r.index[name]; duplicate {
			r.resources[at] = receivedResource{item: item, err: err}
			continue
		}
		r.index[name] = len(r.resources)
		r.resources = append(r.resources, receivedResource{item: item, err: err})
	}
	r.nackDetail = detail.String()
	r.addErrors(m)
	return r
}

// addErrors adds the errors that the server reports, except unnamed ones and OK.
func (r *response) addErrors(m *discoveryv3.DiscoveryResponse) {
	for _, e := range m.GetResourceErrors() {
		name, detail := canonical(e.GetResourceName().GetName()), e.GetErrorDetail()
		if name == "" || detail.GetCode() == int32(codes.OK) {
			continue
		}
		r.errors = append(r.errors, ResourceError{
			Kind: ErrorReported, Key: resource.Key{Type: r.kind, Name: name},
			Code: codes.Code(detail.GetCode()), Err: errors.New(truncate(detail.GetMessage())),
		})
		if _, sent := r.index[name]; !sent {
			r.index[name] = -1
		}
	}
}

// Maximum sizes in bytes of the error detail of a NACK, and of the text for one resource in it.
const (
	maxNACKDetail    = 32 << 10
	maxResourceError = 4 << 10
)

// truncate returns at most maxResourceError bytes of a text, as valid UTF-8 for a proto string.
func truncate(text string) string {
	if len(text) > maxResourceError {
		text = text[:maxResourceError] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

type nackDetail struct {
	text strings.Builder
	more int
}

// add adds the error of the i-th resource, with its name if it has one.
func (d *nackDetail) add(i int, k resource.Key, err error) {
	text := err.Error()
	var invalid *decode.InvalidError
	switch {
	case k.Name == "":
		text = fmt.Sprintf("resources[%d]: %s", i, text)
	case !errors.As(err, &invalid): // an InvalidError has the name
		text = fmt.Sprintf("%s: %s", k, text)
	}
	text = truncate(text)
	if d.text.Len()+len(text) > maxNACKDetail {
		d.more++
		return
	}
	if d.text.Len() > 0 {
		d.text.WriteString("; ")
	}
	d.text.WriteString(text)
}

func (d *nackDetail) String() string {
	if d.more > 0 {
		return fmt.Sprintf("%s; and %d more resources", d.text.String(), d.more)
	}
	return d.text.String()
}
