package files

import "time"

// timing is how long the watcher waits for what.
type timing struct {
	quiet  time.Duration // without a change, until files are read
	most   time.Duration // after the first change, until they are read anyway
	rescan time.Duration // between looks at the directory without a reason
}

var usual = timing{quiet: 100 * time.Millisecond, most: time.Second, rescan: 30 * time.Second}

// unrest is a time of changes: it begins with the first, and is over when there
// was none for a while, so that no file is read half-written.
type unrest struct {
	timing
	begun bool
	due   time.Time // when it may be over
	end   time.Time // when it is over, quiet or not
	// untold is what the directory showed after a change that the system did
	// not tell of, as it may not tell of the next; nil without such a change.
	untold *look
}

// change notes a change that the system told of, or one that was seen.
func (u *unrest) change(now time.Time, untold *look) {
	if !u.begun {
		u.begun, u.end, u.untold = true, now.Add(u.most), nil
	}
	if untold != nil {
		u.untold = untold
	}
	if u.due = now.Add(u.quiet); u.due.After(u.end) {
		u.due = u.end
	}
}

// over reports, once it is due, whether the time of changes is over. It goes on
// where seen shows a further change that nothing told of.
func (u *unrest) over(now time.Time, seen look) bool {
	if now.Before(u.end) && u.untold != nil && !seen.same(*u.untold) {
		u.change(now, &seen)
		return false
	}
	u.begun = false
	return true
}
