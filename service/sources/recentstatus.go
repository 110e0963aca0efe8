package sources

import (
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
)

// The xDS client may be busy with a large response for seconds.
const (
	// probePatience is how long a health probe waits for the xDS client.
	probePatience = 100 * time.Millisecond
	// scrapePatience is how long a scrape of /metrics does.
	scrapePatience = time.Second
)

// recentStatus is the status of the xDS client for those who must not wait for it.
type recentStatus struct {
	mu     sync.Mutex    // guards what follows
	asking chan struct{} // closed when the client has answered; nil while it is not asked
	last   client.Status
}

// get asks the client, and returns its answer, or the last one if it does not answer
// within patience. However many ask, one goroutine waits for the client; it ends when the client
// answers or is closed.
func (r *recentStatus) get(ask func() client.Status, patience time.Duration) client.Status {
	r.mu.Lock()
	asking := r.asking
	if asking == nil {
		asking = make(chan struct{})
		r.asking = asking
		go func() {
			status := ask()
			r.mu.Lock()
			r.last, r.asking = status, nil
			r.mu.Unlock()
			close(asking)
		}()
	}
	r.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-asking:
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
