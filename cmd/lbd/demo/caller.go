package demo

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	// callers call at the same time: with a pause between calls they are
	// mostly below the circuit breaker's limit, and at times above it.
	callers = 10
	// forgets is how many leases there are to one that nobody says done to.
	forgets = 300
	// leaseTTL is what a forgotten lease costs.
	leaseTTL = "5s"
)

// leased is lbd's answer to POST /pick.
type leased struct {
	Address string `json:"address"`
	Lease   struct {
		ID string `json:"id"`
	} `json:"lease"`
}

// call picks, calls the endpoint picked, and says how it went, again and again.
func (w *world) call(ctx context.Context) error {
	for {
		w.callOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(20+rand.IntN(80)) * time.Millisecond):
		}
	}
}

// callOnce makes one call. What goes wrong is lbd's to show, not the demo's.
func (w *world) callOnce(ctx context.Context) {
	body, ok := send(ctx, w.Client, http.MethodPost, w.URL+"/pick?cluster="+cluster+"&ttl="+leaseTTL, "")
	var pick leased
	if !ok || json.Unmarshal(body, &pick) != nil {
		return
	}
	outcome := "success"
	if _, ok := send(ctx, http.DefaultClient, http.MethodGet, "http://"+pick.Address+"/", ""); !ok {
		outcome = "error"
	}
	if rand.IntN(forgets) == 0 {
		return
	}
	send(ctx, w.Client, http.MethodPost, w.URL+"/v1/leases/"+pick.Lease.ID+"/done", `{"outcome":"`+outcome+`"}`)
}

// send makes one request, and reports whether it went well.
func send(ctx context.Context, client *http.Client, method, url, body string) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, false
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return answer, err == nil && response.StatusCode < http.StatusMultipleChoices
}
