package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
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

// endpointList builds an assignment from the entries of a list, as protobuf.
type endpointList struct {
	report  *report
	entries int
	groups  [][]byte       // LocalityLbEndpoints
	numbers map[string]int // of the groups, by the names of their localities
}

// isList reports whether a JSON body is a list.
func isList(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) }

// decodeList is decodeItem for a list, which is text or JSON.
func decodeList(r *report, it *resource.Item, body []byte) (err error) {
	defer rejectPanic(r.key, &err)
	if r.key.Type != resource.TypeAssignment {
		return errListOfOther(r.Format)
	}
	l := endpointList{report: r}
	if r.Format == FormatText {
		err = l.readText(body)
	} else if r.reflective || !l.scanJSON(body) {
		l = endpointList{report: r}
		err = l.readJSON(body)
	}
	if err != nil {
		return err
	}
	raw := l.assignment()
	if err := binarySize(raw, newMessage(r.key.Type).ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
		return err
	}
	return decodeBinary(r, it, raw)
}

// scanJSON reads a list, which is JSON, in one pass. It reports false if there is an error to report.
func (l *endpointList) scanJSON(body []byte) bool {
	s := text.Scan(body)
	for s.Begin('['); s.More(']'); {
		if entry := string(s.String()); s.Failed || s.Entries > MaxJSONEntries || l.add(entry) != "" {
			return false
		}
	}
	return s.End()
}

// readJSON reads a list, which is JSON.
func (l *endpointList) readJSON(body []byte) error {
	f := l.report.Format // that the body had before
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

// readText reads a list, which is text.
func (l *endpointList) readText(body []byte) error {
	line := 0
	for entry := range strings.Lines(string(bytes.TrimPrefix(body, []byte("\ufeff")))) {
		line++
		if entry = strings.TrimSpace(entry); entry == "" || entry[0] == '#' {
			continue
		}
		reason := "is not valid UTF-8"
		if utf8.ValidString(entry) {
			reason = l.add(entry)
		}
		if reason != "" {
			return &SyntaxError{Format: FormatText, Line: line, Reason: reason}
		}
	}
	if l.entries == 0 { // more likely a mistake than an assignment without endpoints
		return &SyntaxError{Format: FormatText, Reason: "the list is empty: " + listForm + "; or push []"}
	}
	return nil
}

// assignment returns the assignment, without a name.
func (l *endpointList) assignment() (raw []byte) {
	for _, group := range l.groups {
		raw = appendBytes(raw, 2, group)
	}
	return raw
}

// errListOfOther rejects a list instead of another resource.
func errListOfOther(f Format) error {
	return &SyntaxError{Format: f, Reason: "a list is only valid for the endpoints of a cluster"}
}

// add adds an endpoint. It returns what is wrong with the entry.
func (l *endpointList) add(entry string) (reason string) {
	if l.entries++; l.entries%pauseEndpoints == 0 {
		l.report.pause()
	}
	var fields [3]string
	n := 0
	for field := range strings.FieldsSeq(entry) {
		if n < len(fields) {
			fields[n] = field
		}
		n++
	}
	if n == 0 {
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
	weight, locality, used := uint64(0), fields[1], 2
	if locality != "" && !strings.Contains(locality, "/") {
		if weight, err = strconv.ParseUint(locality, 10, 32); err != nil || weight == 0 {
			return fmt.Sprintf("%q is no weight, 1 to 4294967295: %s", locality, listForm)
		}
		locality, used = fields[2], 3
	}
	if n > used {
		return fmt.Sprintf("%q is too much: %s", strings.Join(strings.Fields(entry)[used:], " "), listForm)
	}
	i, reason := l.group(locality)
	if reason != "" {
		return reason
	}
	b, from := beginMessage(l.groups[i], 2)
	if weight > 0 {
		b = appendWrapped(b, 4, uint32(weight))
	}
	b, at := beginMessage(b, 1)
	l.groups[i] = endMessage(endMessage(appendAddress(b, host, uint32(number)), at), from)
	return ""
}

// group returns the index of the group of the locality with a name, region/zone or region/zone/sub_zone, or of the one
// without.
func (l *endpointList) group(name string) (i int, reason string) {
	i, ok := l.numbers[name]
	if ok {
		return i, ""
	}
	var b []byte
	if i = len(l.groups); i == 0 {
		l.numbers = map[string]int{}
	} else {
		b = make([]byte, 0, len(l.groups[i-1])) // most have about the same size
	}
	if name != "" {
		parts := strings.Split(name, "/")
		if len(parts) < 2 || len(parts) > 3 {
			return 0, fmt.Sprintf("%q is no locality, REGION/ZONE or REGION/ZONE/SUB_ZONE: %s", name, listForm)
		}
		var from int
		b, from = beginMessage(b, 1)
		for k, part := range parts {
			b = appendText(b, protowire.Number(1+k), part)
		}
		b = endMessage(b, from)
	}
	l.numbers[name] = i
	l.groups = append(l.groups, b)
	return i, ""
}
