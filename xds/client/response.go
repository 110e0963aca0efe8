package client

import (
	"errors"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// response is a DiscoveryResponse, decoded.
type response struct {
	typeURL string
	kind    resource.Type // empty for a type that lbd does not know
	version string
	nonce   string
	// resources are those that bear a name, good and bad, each name once: the last
	// counts. The names are canonical.
	resources []received
	places    map[string]int // in resources, by name; -1 if the response has only an error for it
	nameless  int            // bad ones without a name
	// errors are the errors that the server reports for single resources.
	errors []resourceError
	// refusal is what is wrong with it all, for the server; empty where nothing is.
	refusal string
}

// received is one resource of a response.
type received struct {
	item resource.Item // with an error, the Key alone
	err  error
}

// resourceError is an error that the server reports for a resource (xRFC TP3).
type resourceError struct {
	name    string // canonical
	code    codes.Code
	message string
}

// err returns the error for those who want the resource.
func (e *resourceError) err(k resource.Key, server string) error {
	if e.code == codes.NotFound {
		return &NotFoundError{Key: k, Server: server, Message: e.message, Reported: true}
	}
	return &ResourceError{Key: k, Server: server, Code: e.code, Message: e.message}
}

// whole reports whether a response has all resources of its type that exist and
// were asked for, so that one that is absent is no more.
func (r *response) whole() bool {
	return r.kind == resource.TypeListener || r.kind == resource.TypeCluster
}

// kindOf returns the type that a URL names, empty for one that lbd does not know.
func kindOf(url string) resource.Type {
	for _, t := range kinds {
		if t.URL() == url {
			return t
		}
	}
	return ""
}

// decode judges what a server sent. It never fails: what is wrong with a resource is
// in the response. What is known need not be decoded again.
func decodeResponse(m *discoveryv3.DiscoveryResponse, o decode.Options, known memory) *response {
	r := &response{kind: kindOf(m.GetTypeUrl()), typeURL: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce()}
	if r.kind == "" {
		return r
	}
	r.places = make(map[string]int, len(m.GetResources()))
	var wrong complaint
	for i, a := range m.GetResources() {
		it, ok := known.item(i, r.kind, a)
		var err error
		if !ok {
			it, err = decodeOne(r.kind, a, o)
			it.Key.Name = canonical(it.Key.Name)
		}
		if err != nil {
			wrong.add(i, it.Key, err)
		}
		if it.Key.Name == "" {
			r.nameless++
			continue
		}
		if place, twice := r.places[it.Key.Name]; twice {
			r.resources[place] = received{item: it, err: err}
			continue
		}
		r.places[it.Key.Name] = len(r.resources)
		r.resources = append(r.resources, received{item: it, err: err})
	}
	r.refusal = wrong.String()
	r.addErrors(m)
	return r
}

// addErrors adds the errors that the server reports. An error without a name or with
// the code OK is not one.
func (r *response) addErrors(m *discoveryv3.DiscoveryResponse) {
	for _, e := range m.GetResourceErrors() {
		name, detail := canonical(e.GetResourceName().GetName()), e.GetErrorDetail()
		if name == "" || detail.GetCode() == int32(codes.OK) {
			continue
		}
		message := detail.GetMessage()
		if len(message) > maxWords {
			message = message[:maxWords] + "…"
		}
		r.errors = append(r.errors, resourceError{
			name: name, code: codes.Code(detail.GetCode()),
			message: strings.ToValidUTF8(message, "\uFFFD"),
		})
		if _, sent := r.places[name]; !sent {
			r.places[name] = -1
		}
	}
}

// decodeOne makes a panic, of whoever's, a refusal: no server is to bring lbd down.
func decodeOne(t resource.Type, a *anypb.Any, o decode.Options) (it resource.Item, err error) {
	defer func() {
		if p := recover(); p != nil {
			it = resource.Item{Key: resource.Key{Type: t, Name: it.Key.Name}}
			err = fmt.Errorf("cannot be decoded: panic: %v", p)
		}
	}()
	return decode.Resource(t, a, o)
}

// How much is said to a server about one response, and of that about one resource,
// in bytes.
const (
	maxComplaint = 32 << 10
	maxWords     = 4 << 10
)

// complaint is what is wrong with the resources of a response.
type complaint struct {
	words strings.Builder
	more  int
}

// add says what is wrong with the i-th resource, by its name if it has one.
func (c *complaint) add(i int, k resource.Key, err error) {
	words := err.Error()
	var invalid *decode.InvalidError
	switch {
	case k.Name == "":
		words = fmt.Sprintf("resources[%d]: %s", i, words)
	case !errors.As(err, &invalid): // which names it
		words = fmt.Sprintf("%s: %s", k, words)
	}
	if len(words) > maxWords {
		words = words[:maxWords] + "…"
	}
	// It travels as a proto string.
	words = strings.ToValidUTF8(words, "\uFFFD")
	if c.words.Len()+len(words) > maxComplaint {
		c.more++
		return
	}
	if c.words.Len() > 0 {
		c.words.WriteString("; ")
	}
	c.words.WriteString(words)
}

func (c *complaint) String() string {
	if c.more > 0 {
		return fmt.Sprintf("%s; and %d more resources", c.words.String(), c.more)
	}
	return c.words.String()
}
