package text

import "strings"

const maxSuggested = 64

// Closest returns the known name that was probably meant by a misspelled one, or empty: the
// one with the fewest edits, or the only one that continues it with another word.
func Closest(name string, known []string) string {
	if len(name) > maxSuggested {
		return ""
	}
	plain := strings.NewReplacer("_", "", "-", "")
	wanted := strings.ToLower(plain.Replace(name))
	if len(wanted) < 3 {
		return ""
	}
	best, fewest := "", min(max(1, len(wanted)/4), 3)+1
	begun, begins := "", 0
	for _, k := range known {
		other := strings.ToLower(plain.Replace(k))
		if n := Edits(wanted, other, fewest); n < fewest {
			best, fewest = k, n
		}
		if rest, ok := strings.CutPrefix(k, name); ok && rest != "" && (rest[0] < 'a' || rest[0] > 'z') {
			begun, begins = k, begins+1
		}
	}
	if best == "" && begins == 1 {
		return begun
	}
	return best
}

// Edits counts the letters to insert, delete, replace or swap with their neighbor
// to make b of a (optimal string alignment); it may stop counting at limit.
func Edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := 1
			if a[i] == b[j] {
				replace = 0
			}
			row[j+1] = min(last[j]+replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
