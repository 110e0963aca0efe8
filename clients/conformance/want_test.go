package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// outcome is what a step of requests came to.
type outcome struct {
	answer  stand.Answer
	n       int
	seconds float64 // as the driver measures it
	tries   []int   // by upstream
	most    int     // requests in flight at upstreams
	calls   int     // to lbd, if there is a proxy
	ended   bool    // a step ended the runner meanwhile, so that there is no answer
}

// results are the counts by status or error.
func (o outcome) results() map[string]int {
	r := make(map[string]int)
	for status, n := range o.answer.Statuses {
		r[status] += n
	}
	for name, n := range o.answer.Errors {
		r[name] += n
	}
	if o.answer.Status != 0 {
		r[strconv.Itoa(o.answer.Status)]++
	}
	if o.answer.Error != "" {
		r[o.answer.Error]++
	}
	return r
}

func (o outcome) statuses() (n int) {
	for result, count := range o.results() {
		if _, err := strconv.Atoi(result); err == nil {
			n += count
		}
	}
	return n
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

func (o outcome) String() string {
	text := fmt.Sprintf("results %v of %d requests in %.2f s, tries %v, at most %d in flight", o.results(), o.n, o.seconds, o.tries, o.most)
	if o.answer.Body != "" {
		text += fmt.Sprintf(", body %.200q", o.answer.Body)
	}
	if o.answer.Message != "" {
		text += fmt.Sprintf(", message %.500q", o.answer.Message)
	}
	return text
}

// problem says what is not as wanted, "" if all is. upstreams are the addresses.
func (w want) problem(o outcome, cluster string, upstreams []string) string {
	for _, text := range []string{w.results(o), w.texts(o, upstreams), w.atUpstreams(o), w.choice(o, cluster, upstreams)} {
		if text != "" {
			return text
		}
	}
	if w.Calls != nil && !w.Calls.has(float64(o.calls)) {
		return fmt.Sprintf("%d calls to lbd, not %s", o.calls, w.Calls)
	}
	if w.Seconds != nil && !w.Seconds.has(o.seconds) {
		return fmt.Sprintf("took %.2f s, not %s", o.seconds, w.Seconds)
	}
	return ""
}

func (w want) results(o outcome) string {
	results, total := o.results(), 0
	for _, n := range results {
		total += n
	}
	if total != o.n {
		return fmt.Sprintf("%d results", total)
	}
	permitted := slices.Clone(w.Error)
	if w.Status != 0 {
		permitted = append(permitted, strconv.Itoa(w.Status))
	}
	for _, result := range slices.Sorted(maps.Keys(w.Share)) {
		permitted = append(permitted, result)
		s := w.Share[result]
		if share := float64(results[result]) / float64(o.n); !s.has(share) {
			return fmt.Sprintf("the share of %s is %.3f, not %s", result, share, &s)
		}
	}
	if permitted == nil {
		return ""
	}
	for _, result := range slices.Sorted(maps.Keys(results)) {
		if !slices.Contains(permitted, result) {
			return fmt.Sprintf("%s, not %s", result, strings.Join(permitted, " or "))
		}
	}
	return ""
}

func (w want) texts(o outcome, upstreams []string) string {
	for _, part := range w.Body {
		part = filled(part, "$", upstreams)
		if !strings.Contains(o.answer.Body, part) {
			return fmt.Sprintf("the body does not have %q", part)
		}
	}
	for _, part := range w.BodyNot {
		if strings.Contains(o.answer.Body, part) {
			return fmt.Sprintf("the body has %q", part)
		}
	}
	for _, part := range w.Message {
		if !strings.Contains(o.answer.Message, part) {
			return fmt.Sprintf("the message does not have %q", part)
		}
	}
	return ""
}

// filled replaces $0 by the address of upstream 0, then $ by the cluster.
func filled(text, cluster string, upstreams []string) string {
	for i, address := range upstreams {
		text = strings.ReplaceAll(text, "$"+strconv.Itoa(i), address)
	}
	return strings.ReplaceAll(text, "$", cluster)
}

func (w want) choice(o outcome, cluster string, upstreams []string) string {
	if w.Choice == nil {
		return ""
	}
	if o.answer.Choice == nil {
		return "the answer has no choice"
	}
	c := o.answer.Choice
	has := map[string]any{
		"cluster": c.Cluster, "address": c.Address, "zone": c.Zone, "priority": float64(c.Priority), "attempt": float64(c.Attempt),
	}
	for key, wanted := range w.Choice {
		if text, ok := wanted.(string); ok {
			wanted = filled(text, cluster, upstreams)
		}
		if has[key] != wanted {
			return fmt.Sprintf("%s of the choice is %v, not %v", key, has[key], wanted)
		}
	}
	return ""
}

func (w want) atUpstreams(o outcome) string {
	total := sum(o.tries)
	if w.Tries != nil && !w.Tries.has(float64(total)) {
		return fmt.Sprintf("%d tries, not %s", total, w.Tries)
	}
	for i, n := range o.tries {
		if s, ok := w.TriesAt[strconv.Itoa(i)]; ok && !s.has(float64(n)) {
			return fmt.Sprintf("%d tries at upstream %d, not %s", n, i, &s)
		}
		if w.TriesAll != nil && !w.TriesAll.has(float64(n)) {
			return fmt.Sprintf("%d tries at upstream %d, not %s", n, i, w.TriesAll)
		}
		if s, ok := w.SharesAt[strconv.Itoa(i)]; ok && !s.has(float64(n)/float64(max(1, total))) {
			return fmt.Sprintf("%.3f of the tries at upstream %d, not %s", float64(n)/float64(max(1, total)), i, &s)
		}
	}
	used := 0
	for _, n := range o.tries {
		used += min(n, 1)
	}
	if w.Used != nil && !w.Used.has(float64(used)) {
		return fmt.Sprintf("%d upstreams had tries, not %s", used, w.Used)
	}
	if w.SentOnce && total != o.statuses() {
		return fmt.Sprintf("%d tries for %d requests with a status", total, o.statuses())
	}
	if w.InFlight != nil && !w.InFlight.has(float64(o.most)) {
		return fmt.Sprintf("%d in flight, not %s", o.most, w.InFlight)
	}
	return ""
}
