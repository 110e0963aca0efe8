package decode

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// name judges a resource's own name, fills in an absent one, and returns it.
func (r *report) name(field, own, expected string) string {
	if !r.byHand {
		if own == "" {
			r.refuse(field, "is empty")
			return ""
		}
		r.key.Name = own
		return own
	}
	switch {
	case own == "" && expected == "":
		r.refuse(field, "is empty")
		return ""
	case own == "":
		r.note(field, "is absent: taken as %q", expected)
		own = expected
	case expected != "" && own != expected:
		r.refuse(field, "is %q, and should be %q or absent", own, expected)
		return expected
	}
	r.key.Name = own
	r.refuseIf(field, badName(own))
	return own
}

// badName says why s cannot name a resource, or nothing.
func badName(s string) string {
	if s == ReservedName {
		return fmt.Sprintf("is %q, which stands in metrics for the clusters that have no series of their own", s)
	}
	return badText(s, MaxNameBytes)
}

// badReference says why s cannot be the name of another resource, or nothing.
func badReference(s string) string {
	if s == "" {
		return "is empty"
	}
	return badName(s)
}

// badText says why a text of at most so many bytes cannot be s, or nothing.
func badText(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("is %d bytes long, of at most %d", len(s), most)
	}
	return unprintable(s)
}

// unprintable says which character of s cannot be printed, or nothing.
func unprintable(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("holds the character %U, which cannot be printed", r)
		}
	}
	return ""
}
