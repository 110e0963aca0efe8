package decode

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// name validates a resource's own name, fills in an absent one, and returns it.
func (r *report) name(field, own, expected string) string {
	if r.byHand && own == "" && expected != "" {
		r.note(field, "is absent: taken as %q", expected)
		own = expected
	}
	switch {
	case own == "":
		r.reject(field, "is empty")
	case r.byHand && expected != "" && own != expected:
		r.reject(field, "is %q, and should be %q or absent", own, expected)
		return expected
	default:
		r.key.Name = own
		if r.byHand {
			r.rejectIf(field, badName(own))
		}
	}
	return own
}

// badName returns why s cannot be the name of a resource, or nothing.
func badName(s string) string {
	if s == ReservedName {
		return fmt.Sprintf("is %q, which is reserved: metrics use it for the clusters without series of their own", s)
	}
	return badText(s, MaxNameBytes)
}

func badReference(s string) string {
	if s == "" {
		return "is empty"
	}
	return badName(s)
}

func badText(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("is %d bytes long, of at most %d", len(s), most)
	}
	return unprintable(s)
}

// unprintable returns which character of s cannot be printed, or nothing.
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
