package share

import "slices"

// targets divides limit by max-min fairness: each demand gets what it asks for, or as much as
// every other one that gets less than it asks for. What no demand needs is divided equally, so
// that a replica has a share before its demand begins. The targets sum up to limit.
func targets(limit int64, demands []int64) []int64 {
	out := make([]int64, len(demands))
	if len(demands) == 0 || limit <= 0 {
		return out
	}
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(demands[a]-demands[b], -1), 1)) })
	rest := limit
	for n, i := range order {
		fair := rest / int64(len(order)-n)
		if demands[i] > fair {
			spread(out, order[n:], rest) // all others ask for more as well
			return out
		}
		out[i] = demands[i]
		rest -= demands[i]
	}
	slices.Sort(order)
	spread(out, order, rest)
	return out
}

// spread adds equal parts of n to the targets at some places; the first get the remainder.
func spread(out []int64, places []int, n int64) {
	each, remainder := n/int64(len(places)), n%int64(len(places))
	slices.Sort(places)
	for k, i := range places {
		out[i] += each
		if int64(k) < remainder {
			out[i]++
		}
	}
}
