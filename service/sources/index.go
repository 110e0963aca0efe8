package sources

import (
	"context"
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
)

// Index returns the index of the store's last commit that picks use. It costs an atomic load.
func (p *pushes) Index() uint64 { return p.served.now() }

// AwaitIndex waits until picks use an index of the store, for at most wait: 0 does not wait. It
// fails with IndexNotReached, with ShuttingDown when the service drains, and with CallerGone
// when ctx ends.
func (p *pushes) AwaitIndex(ctx context.Context, index uint64, wait time.Duration) error {
	if p.Index() >= index {
		return nil
	}
	why := "set wait= to wait for it"
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		defer context.AfterFunc(p.Draining, cancel)()
		switch {
		case p.served.await(waiting, index):
			return nil
		case ctx.Err() != nil:
			return fault.FromContext(ctx.Err())
		case p.Draining.Err() != nil:
			return fault.Errorf(fault.ShuttingDown, "lbd is shutting down, and serves index %d, not yet %d", p.Index(), index)
		}
		why = fmt.Sprintf("min_index was not reached within %v", wait)
	}
	if st, err := p.open(); err == nil && st.Err() != nil {
		why += "; " + st.Err().Error()
	}
	return fault.Errorf(fault.IndexNotReached, "this replica serves index %d, not yet %d: %s", p.Index(), index, why).Retry(time.Second)
}
