package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// A list of endpoints is a short form of a ClusterLoadAssignment that is written by hand: a JSON or
// YAML list of strings, or text with one of them in each line. A string is
//
//	address [weight] [region/zone[/sub_zone]]
//
// such as "10.0.0.7:8080 2 eu/a". In text, empty lines and those that begin with # are ignored.

// listForm is what errors say.
const (
	listEntry = "ADDRESS:PORT [WEIGHT] [REGION/ZONE], such as 10.0.0.7:8080 2 eu/a"
	listForm  = "write " + listEntry
)

// endpointList builds an assignment from the entries of a list.
type endpointList struct {
	assignment *endpointv3.ClusterLoadAssignment
	localities map[string]*endpointv3.LocalityLbEndpoints
}

// isList reports whether a JSON body is a list.
func isList(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) }

// readList reads a list, which is text or JSON, into m. f is the format that the body had before.
func readList(body []byte, f Format, m proto.Message) error {
	if f == FormatText {
		return readTextList(body, m)
	}
	return readJSONList(body, f, m)
}

// readJSONList reads a list, which is JSON, into m. f is the format that the body had before.
func readJSONList(body []byte, f Format, m proto.Message) error {
	l, err := newEndpointList(f, m)
	if err != nil {
		return err
	}
	if _, err := text.Skim(body, MaxJSONEntries, MaxJSONEntries); err != nil {
		return textError(f, err)
	}
	var entries []any
	if err := json.Unmarshal(body, &entries); err != nil {
		return &SyntaxError{Format: f, Reason: plain(err)}
	}
	for i, e := range entries {
		field := fmt.Sprintf("[%d]", i)
		entry, ok := e.(string)
		if !ok {
			return &SyntaxError{Format: f, Field: field, Reason: "is no string: " + listForm}
		}
		if reason := l.add(entry); reason != "" {
			return &SyntaxError{Format: f, Field: field, Reason: reason}
		}
	}
	return nil
}

// readTextList reads a list, which is text, into m.
func readTextList(body []byte, m proto.Message) error {
	l, err := newEndpointList(FormatText, m)
	if err != nil {
		return err
	}
	empty, line := true, 0
	for entry := range strings.Lines(string(bytes.TrimPrefix(body, []byte("\ufeff")))) {
		line++
		if entry = strings.TrimSpace(entry); entry == "" || entry[0] == '#' {
			continue
		}
		empty = false
		if reason := l.add(entry); reason != "" {
			return &SyntaxError{Format: FormatText, Line: line, Reason: reason}
		}
	}
	if empty { // more likely a mistake than an assignment without endpoints
		return &SyntaxError{Format: FormatText, Reason: "the list is empty: " + listForm + "; or push []"}
	}
	return nil
}

func newEndpointList(f Format, m proto.Message) (*endpointList, error) {
	a, ok := m.(*endpointv3.ClusterLoadAssignment)
	if !ok {
		return nil, errListOfOther(f)
	}
	return &endpointList{a, map[string]*endpointv3.LocalityLbEndpoints{}}, nil
}

// errListOfOther rejects a list instead of another resource.
func errListOfOther(f Format) error {
	return &SyntaxError{Format: f, Reason: "a list is only valid for the endpoints of a cluster"}
}

// add adds an endpoint. It returns what is wrong with the entry.
func (l *endpointList) add(entry string) (reason string) {
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return "is empty: " + listForm
	}
	host, port, err := net.SplitHostPort(fields[0])
	if err != nil {
		return fmt.Sprintf("%q is no address: %s", fields[0], listForm)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Sprintf("%q has no valid port: %s", fields[0], listForm)
	}
	e := endpointAddress{host, uint32(number)}.endpoint()
	rest := fields[1:]
	if len(rest) > 0 && !strings.Contains(rest[0], "/") {
		weight, err := strconv.ParseUint(rest[0], 10, 32)
		if err != nil || weight == 0 {
			return fmt.Sprintf("%q is no weight, 1 to 4294967295: %s", rest[0], listForm)
		}
		e.LoadBalancingWeight = wrapperspb.UInt32(uint32(weight))
		rest = rest[1:]
	}
	var locality string
	if len(rest) > 0 {
		locality, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return fmt.Sprintf("%q is too much: %s", strings.Join(rest, " "), listForm)
	}
	group, reason := l.group(locality)
	if reason == "" {
		group.LbEndpoints = append(group.LbEndpoints, e)
	}
	return reason
}

// group returns the locality with a name, region/zone or region/zone/sub_zone, or the one of endpoints
// without.
func (l *endpointList) group(name string) (group *endpointv3.LocalityLbEndpoints, reason string) {
	if group = l.localities[name]; group != nil {
		return group, ""
	}
	group = &endpointv3.LocalityLbEndpoints{}
	if name != "" {
		parts := strings.Split(name, "/")
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Sprintf("%q is no locality, REGION/ZONE or REGION/ZONE/SUB_ZONE: %s", name, listForm)
		}
		group.Locality = &corev3.Locality{Region: parts[0], Zone: parts[1]}
		if len(parts) == 3 {
			group.Locality.SubZone = parts[2]
		}
	}
	l.localities[name] = group
	l.assignment.Endpoints = append(l.assignment.Endpoints, group)
	return group, ""
}
