package files

import "time"

var defaultTiming = timing{quiet: 100 * time.Millisecond, long: 2 * time.Second, most: time.Second, rescan: 30 * time.Second}

// debounce delays the reading after a change until there was none for a while, so that no
// file is read half-written.
type debounce struct {
	timing
	begun bool
	last  time.Time // change
	due   time.Time // of the next check
	end   time.Time // of the delay at the latest
	// unnotified is the listing after a change without a notification, of which the next
	// change may have none either; nil without such a change.
	unnotified *listing
}

// change restarts the delay after a change, with the listing of one without notification.
func (u *debounce) change(now time.Time, unnotified *listing) {
	if !u.begun {
		u.begun, u.end, u.unnotified = true, now.Add(u.most), nil
	}
	if unnotified != nil {
		u.unnotified = unnotified
	}
	u.last = now
	if u.due = now.Add(u.quiet); u.due.After(u.end) {
		u.due = u.end
	}
}

// over reports, when it is due, whether the delay is over. It continues if seen shows a
// further change without notification.
func (u *debounce) over(now time.Time, seen listing) bool {
	if now.Before(u.end) && u.unnotified != nil && !seen.same(*u.unnotified) {
		u.change(now, &seen)
		return false
	}
	u.begun = false
	return true
}
