package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
)

type historyList struct {
	Changes []struct {
		Index    uint64 `json:"index"`
		Restored uint64 `json:"restored"`
		Says     string `json:"says"`
		Kept     bool   `json:"kept"`
	} `json:"changes"`
	Oldest uint64 `json:"oldest"`
}

// history returns the history of a daemon, once it serves an index.
func (d *daemon) history(t *testing.T, index uint64) (list historyList, text string) {
	t.Helper()
	status, text := d.request(http.MethodGet, fmt.Sprintf("/v1/history?limit=1000&wait=10s&min_index=%d", index), "")
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	return list, text
}

// TestHistory: daemons that push at the same time have one history, which has every change exactly
// once, also after a daemon was killed. Each of them can restore what another one has replaced.
func TestHistory(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	url := "etcd://" + m.client + "/lbd"
	daemons := []*daemon{startDaemon(t, url), startDaemon(t, url)}
	for _, d := range daemons {
		d.untilReady(t, http.StatusOK)
	}
	const each = 25
	var last [2]uint64
	var clients sync.WaitGroup
	for i, d := range daemons {
		clients.Go(func() {
			for n := range each {
				_, text := d.push("orders", 1+i*each+n)
				var answer struct{ Index uint64 }
				if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Index == 0 {
					t.Errorf("push: %s", text)
				}
				last[i] = answer.Index
			}
		})
	}
	clients.Wait()
	one, text := daemons[0].history(t, max(last[0], last[1]))
	if _, other := daemons[1].history(t, max(last[0], last[1])); other != text || len(one.Changes) != 2*each {
		t.Fatalf("%d changes; the same at both: %v", len(one.Changes), other == text)
	}
	pushed := map[string]bool{} // addresses that were added; the first push has another text
	for i, c := range one.Changes {
		address := regexp.MustCompile(`\(127\.0\.0\.\d+:80\)`).FindString(c.Says)
		if pushed[address] || !c.Kept || i > 0 && c.Index > one.Changes[i-1].Index {
			t.Errorf("%+v", c)
		}
		pushed[address] = true
	}
	daemons[0].kill()
	daemons[0].start(t)
	daemons[0].untilReady(t, http.StatusOK)
	if _, after := daemons[0].history(t, max(last[0], last[1])); after != text {
		t.Errorf("the history is another one after a restart: %s", after)
	}
	// What the first push has left comes back.
	first := one.Changes[len(one.Changes)-1].Index
	was, body := daemons[1].request(http.MethodPost, fmt.Sprintf("/v1/history/%d/restore?cluster=orders", first), "")
	if was != http.StatusOK {
		t.Fatalf("%d %s", was, body)
	}
	now, _ := daemons[0].history(t, max(last[0], last[1])+1)
	if c := now.Changes[0]; c.Restored != first {
		t.Errorf("%+v", c)
	}
	status, body := daemons[0].request(http.MethodGet, fmt.Sprintf("/v1/history/%d/diff?against=now&cluster=orders", first), "")
	if status != http.StatusOK || !strings.Contains(body, `"count":0`) {
		t.Errorf("the restored state differs: %d %s", status, body)
	}
}
