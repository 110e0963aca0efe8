package text

import (
	"slices"
	"strings"
)

// yamlScanner converts the YAML that most people and programs write to JSON, in one pass: block mappings and sequences,
// and scalars and flow mappings and sequences that are in one line; in ASCII, without tabs, escapes, anchors, tags and
// rare forms of scalars. It fails on all else, and on errors.
type yamlScanner struct {
	body   string
	at     int
	line   int  // where the line begins
	indent int  // of the node that comes next, if it begins a line or follows a dash; -1 at the end
	marked bool // there was a mark of the beginning of a document

	json    []byte
	members []yamlName // of the mappings that are open
	depth   int
	flows   int // how many of them are flow mappings and sequences
	nodes   int
	failed  bool
	pause   func()
}

// yamlName is the name of a member of a mapping, and the place of the member in the JSON.
type yamlName struct {
	name     string
	from, to int
}

// maxYAMLKey is below the limit of the parser for what is before the colon of a key.
const maxYAMLKey = 1000

// scanYAML returns a text as JSON, as FromYAML does, or false if it gave up.
func scanYAML(body []byte, pause func()) (json []byte, ok bool) {
	y := yamlScanner{body: string(body), json: make([]byte, 0, len(body)), pause: pause}
	y.next()
	y.block(y.indent)
	return y.json, !y.failed && y.indent < 0
}

func (y *yamlScanner) fail() {
	y.failed = true
	y.at, y.indent = len(y.body), -1
}

// peek returns the next byte, or the end of a line at the end of the text.
func (y *yamlScanner) peek() byte {
	if y.at < len(y.body) {
		return y.body[y.at]
	}
	return '\n'
}

// blankAt reports whether a space or the end of a line is at a place.
func (y *yamlScanner) blankAt(at int) bool {
	return at >= len(y.body) || y.body[at] == ' ' || y.body[at] == '\n'
}

func (y *yamlScanner) spaces() {
	for y.at < len(y.body) && y.body[y.at] == ' ' {
		y.at++
	}
}

// next goes on to the next line with a node.
func (y *yamlScanner) next() {
	for y.at < len(y.body) {
		y.line = y.at
		y.spaces()
		y.indent = y.at - y.line
		switch rest := y.body[y.at:]; {
		case y.peek() == '\n':
			y.at++
		case rest[0] == '#':
			y.comment()
		case y.indent > 0 || !strings.HasPrefix(rest, "---") && !strings.HasPrefix(rest, "..."):
			return
		case rest[0] == '.' || y.marked || len(y.json) > 0:
			y.fail()
		default:
			y.marked = true
			y.at += len("---")
			y.end()
			return
		}
	}
	y.indent = -1
}

// comment reads the rest of the line.
func (y *yamlScanner) comment() {
	for ; y.peek() != '\n'; y.at++ {
		if c := y.peek(); c < ' ' || c > '~' {
			y.fail()
		}
	}
	y.at++
}

// ends reports whether the line has no more nodes.
func (y *yamlScanner) ends() bool {
	y.spaces()
	return y.peek() == '\n' || y.peek() == '#' && y.body[y.at-1] == ' '
}

// end reads the end of the line, and goes on to the next one.
func (y *yamlScanner) end() {
	if !y.ends() {
		y.fail()
	}
	y.comment()
	y.next()
}

// visit counts a node.
func (y *yamlScanner) visit() {
	if y.nodes++; y.nodes%pauseNodes == 0 {
		y.pause()
	}
}

// within reads a mapping or a sequence.
func (y *yamlScanner) within(read func()) {
	if y.depth++; y.depth > MaxDepth {
		y.fail()
	}
	y.visit()
	read()
	y.depth--
}

// block reads a block mapping or sequence, all of whose nodes have an indentation.
func (y *yamlScanner) block(indent int) {
	y.within(func() {
		if y.dash() {
			y.sequence(indent)
		} else {
			y.mapping(indent)
		}
	})
}

// dash reports whether an element of a block sequence comes next.
func (y *yamlScanner) dash() bool { return y.peek() == '-' && y.blankAt(y.at+1) }

func (y *yamlScanner) sequence(indent int) {
	y.json = append(y.json, '[')
	for first := true; y.indent == indent && y.dash(); first = false {
		if !first {
			y.json = append(y.json, ',')
		}
		if y.at++; y.below(indent, false) {
			continue
		}
		if y.indent = y.at - y.line; y.dash() || y.isName() {
			y.block(y.indent)
		} else {
			y.value()
			y.end()
		}
	}
	y.json = append(y.json, ']')
}

func (y *yamlScanner) mapping(indent int) {
	first, begin := len(y.members), len(y.json)
	y.json = append(y.json, '{')
	for y.indent == indent && !y.failed {
		if y.name(first); !y.below(indent, true) {
			y.value()
			y.end()
		}
	}
	y.close(first, begin)
}

// below reads the element of a sequence or the value of a member if it is in the next lines, or absent.
func (y *yamlScanner) below(indent int, member bool) bool {
	if !y.ends() {
		return false
	}
	if y.end(); y.indent > indent || member && y.indent == indent && y.dash() {
		y.block(y.indent)
	} else {
		y.json = append(y.json, "null"...)
	}
	return true
}

// value reads a scalar, or a flow mapping or sequence.
func (y *yamlScanner) value() {
	if c := y.peek(); c == '{' || c == '[' {
		y.flows++
		y.within(y.flow)
		y.flows--
		return
	}
	y.visit()
	text, quoted := y.token()
	y.scalar(text, quoted)
}

func (y *yamlScanner) flow() {
	open := y.peek()
	first, begin := len(y.members), len(y.json)
	y.json = append(y.json, open)
	y.at++
	if y.spaces(); y.peek() == open+2 {
		y.at++
	} else {
		for more := true; more; y.at++ {
			if y.spaces(); open == '{' {
				y.name(first)
				y.spaces()
			}
			y.value()
			if y.spaces(); y.peek() != ',' && y.peek() != open+2 {
				y.fail()
			}
			if more = y.peek() == ','; more && open == '[' {
				y.json = append(y.json, ',')
			}
		}
	}
	if open == '{' {
		y.close(first, begin)
	} else {
		y.json = append(y.json, ']')
	}
}

// isName reports whether the name of a member comes next.
func (y *yamlScanner) isName() bool {
	begin := y.at
	if c := y.peek(); c == '{' || c == '[' {
		return false
	}
	y.token()
	is := y.peek() == ':'
	if !y.failed {
		y.at = begin
	}
	return is
}

// name reads the name of a member of a mapping whose first member has an index.
func (y *yamlScanner) name(first int) {
	y.visit()
	begin := y.at
	name, quoted := y.token()
	json := quoted && y.flows > 0
	if json {
		y.spaces()
	}
	if y.peek() != ':' || !json && !y.blankAt(y.at+1) || y.at-begin > maxYAMLKey || !quoted && strings.EqualFold(name, "null") {
		y.fail()
	}
	y.at++
	n := len(y.members)
	if n > first {
		y.members[n-1].to = len(y.json)
		y.json = append(y.json, ',')
	}
	y.members = append(y.members, yamlName{name, len(y.json), 0})
	y.json = append(appendQuoted(y.json, name), ':')
	y.spaces()
}

// close ends a mapping that begins at a place of the JSON, and sorts its members.
func (y *yamlScanner) close(first, begin int) {
	list := y.members[first:]
	y.members = y.members[:first]
	if len(list) > 0 {
		list[len(list)-1].to = len(y.json)
	}
	byName := func(a, b yamlName) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(list, byName) {
		y.pause()
		slices.SortFunc(list, byName)
		sorted := make([]byte, 0, len(y.json)-begin)
		for i, m := range list {
			if i > 0 {
				sorted = append(sorted, ',')
			}
			sorted = append(sorted, y.json[m.from:m.to]...)
		}
		copy(y.json[begin+1:], sorted)
	}
	for i := 1; i < len(list); i++ {
		if list[i-1].name == list[i].name {
			y.fail()
		}
	}
	y.json = append(y.json, '}')
}

// token reads a scalar in one line, without what it means.
func (y *yamlScanner) token() (text string, quoted bool) {
	begin, quote := y.at, y.peek()
	switch {
	case quote == '"' || quote == '\'':
		return y.quoted(quote), true
	case !isLetter(quote) && !isDigit(quote):
		y.fail()
		return "", false
	}
	for ; y.at < len(y.body); y.at++ {
		switch c := y.body[y.at]; {
		case isLetter(c) || isDigit(c) || c == '.':
		case c == '\n', c == '#' && y.body[y.at-1] == ' ', c == ':' && y.blankAt(y.at+1):
			return strings.TrimRight(y.body[begin:y.at], " "), false
		case y.flows > 0 && strings.IndexByte(",[]{}?", c) >= 0:
			if y.body[y.at-1] == ':' || c == '?' {
				y.fail()
			}
			return strings.TrimRight(y.body[begin:y.at], " "), false
		case c < ' ' || c > '~':
			y.fail()
		}
	}
	return strings.TrimRight(y.body[begin:], " "), false
}

// quoted reads a scalar in quotes.
func (y *yamlScanner) quoted(quote byte) string {
	y.at++
	begin := y.at
	for ; y.at < len(y.body); y.at++ {
		switch c := y.body[y.at]; {
		case c == quote && (quote == '"' || y.at+1 == len(y.body) || y.body[y.at+1] != quote):
			y.at++
			return y.body[begin : y.at-1]
		case c == quote, c < ' ', c > '~', c == '\\' && quote == '"':
			y.fail()
			return ""
		}
	}
	y.fail()
	return ""
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scalar writes a scalar.
func (y *yamlScanner) scalar(text string, quoted bool) {
	switch {
	case quoted:
	case y.failed:
		return
	case text == "null" || text == "true" || text == "false":
		y.json = append(y.json, text...)
		return
	case strings.EqualFold(text, "null") || strings.EqualFold(text, "true") || strings.EqualFold(text, "false"):
		y.fail()
	case isDigit(text[0]) && strings.Count(text, ".") < 2: // others are addresses and the like
		value, reason := number(text)
		if reason != "" || value != "" && (len(text) > 18 || strings.ContainsAny(text, "eE")) { // the parser may not read it as a number
			y.fail()
		}
		if value != "" {
			y.json = append(y.json, value...)
			return
		}
	}
	y.json = appendQuoted(y.json, text)
}
