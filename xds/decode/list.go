package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"slices"
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
	report     *report
	entries    int
	endpoints  []byte         // lb_endpoints with their tags, in the order of the entries
	runs       []endpointRun  // in that order, too
	localities [][]byte       // each with its tag, if it has a name
	numbers    map[string]int // of the localities, by their names
	name       string         // of the last locality
}

// endpointRun are endpoints of a locality, one after the other.
type endpointRun struct{ locality, from, to int }

// isList reports whether a JSON body is a list.
func isList(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) }

// decodeList is decodeItem for a list, which is text or JSON.
func decodeList(r *report, it *resource.Item, body []byte) (err error) {
	defer rejectPanic(r.key, &err)
	if r.key.Type != resource.TypeAssignment {
		return errListOfOther(r.Format)
	}
	l := endpointList{report: r, endpoints: make([]byte, 0, len(body))}
	if r.Format == FormatText {
		err = l.readText(body)
	} else if !l.scanJSON(body) {
		l = endpointList{report: r}
		err = l.readJSON(body)
	}
	if err != nil {
		return err
	}
	return decodeBinary(r, it, l.assignment())
}

// scanJSON reads a list, which is JSON, in one pass. It reports false if there is an error to report.
func (l *endpointList) scanJSON(body []byte) bool {
	s := text.Scan(body)
	for s.Begin('['); s.More(']'); {
		if entry := string(s.String()); s.Failed || l.add(entry) != "" {
			return false
		}
	}
	return s.End() && s.Entries <= MaxJSONEntries
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
func (l *endpointList) assignment() []byte {
	slices.SortStableFunc(l.runs, func(a, b endpointRun) int { return a.locality - b.locality })
	size := len(l.endpoints)
	for _, locality := range l.localities {
		size += len(locality) + 1 + binary.MaxVarintLen32
	}
	raw := make([]byte, 0, size)
	for runs := l.runs; len(runs) > 0; {
		n, locality := 0, l.localities[runs[0].locality]
		size := len(locality)
		for ; n < len(runs) && runs[n].locality == runs[0].locality; n++ {
			size += runs[n].to - runs[n].from
		}
		raw = append(appendUint(appendTag(raw, 2, protowire.BytesType), size), locality...)
		for _, run := range runs[:n] {
			raw = append(raw, l.endpoints[run.from:run.to]...)
		}
		runs = runs[n:]
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
	if reason := l.begin(locality); reason != "" {
		return reason
	}
	b, from := beginMessage(l.endpoints, 2)
	if weight > 0 {
		b = appendWrapped(b, 4, uint32(weight))
	}
	b, at := beginMessage(b, 1)
	l.endpoints = endMessage(endMessage(appendAddress(b, host, uint32(number)), at), from)
	l.runs[len(l.runs)-1].to = len(l.endpoints)
	return ""
}

// begin begins a run of endpoints of the locality with a name, region/zone or region/zone/sub_zone, or of those
// without, unless the last one goes on.
func (l *endpointList) begin(name string) (reason string) {
	if len(l.runs) > 0 && name == l.name {
		return ""
	}
	number, ok := l.numbers[name]
	if !ok {
		var locality []byte
		if name != "" {
			parts := strings.Split(name, "/")
			if len(parts) < 2 || len(parts) > 3 {
				return fmt.Sprintf("%q is no locality, REGION/ZONE or REGION/ZONE/SUB_ZONE: %s", name, listForm)
			}
			b, from := beginMessage(nil, 1)
			for i, part := range parts {
				b = appendText(b, protowire.Number(1+i), part)
			}
			locality = endMessage(b, from)
		}
		if l.numbers == nil {
			l.numbers = map[string]int{}
		}
		number = len(l.localities)
		l.numbers[name] = number
		l.localities = append(l.localities, locality)
	}
	l.name = name
	l.runs = append(l.runs, endpointRun{locality: number, from: len(l.endpoints)})
	return ""
}
