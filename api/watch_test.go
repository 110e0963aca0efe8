package api_test

import "strings"

// sent is a server-sent event.
type sent struct{ kind, id, data string }

// parseEvents reads a stream, comments and retry aside.
func parseEvents(stream string) []sent {
	var out []sent
	for block := range strings.SplitSeq(stream, "\n\n") {
		if e := parseEvent(block); e.kind != "" {
			out = append(out, e)
		}
	}
	return out
}

func parseEvent(block string) sent {
	var e sent
	for line := range strings.SplitSeq(block, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		}
	}
	return e
}
