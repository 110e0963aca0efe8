package changelog

import (
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Source is what made a change.
type Source string

// The sources.
const (
	Pushed     Source = "push"
	FromFile   Source = "file"
	FromServer Source = "server"
)

// Entry is one change in a list.
type Entry struct {
	// Index is that of the commit of a push. A change of another source has no commit: it has the
	// index that this daemon served then.
	Index uint64 `json:"index" example:"4711"`
	// Time is by the clock of the daemon that made, or observed, the change.
	Time   time.Time `json:"time"`
	Source Source    `json:"source" swaggertype:"string" enums:"push,file,server"`
	// Caller is the name of the identity that pushed; absent without identity.
	Caller string `json:"caller,omitempty"`
	// Address is that of the caller, or unix.
	Address string `json:"address,omitempty"`
	// Message is the Lbd-Message of the push.
	Message string `json:"message,omitempty"`
	// Restored is the index that the push restored; absent for other pushes.
	Restored uint64 `json:"restored,omitempty"`
	// File is the changed file, if there is only one.
	File string `json:"file,omitempty"`
	// Says is the difference in words.
	Says string `json:"says" example:"1 resource changed: orders: 3 endpoints removed from us-east1/a"`
	// Changes are the first few resources, without words.
	Changes []difference.Change `json:"changes"`
	// Count is the number of all resources that changed.
	Count int `json:"count"`
	// Kept is true if what the push replaced is kept. Without it, earlier indices of these resources
	// cannot be restored.
	Kept bool `json:"kept"`
	// Problem is why the record of a push cannot be read; absent if it can.
	Problem string `json:"problem,omitempty"`
}

// Filter chooses changes.
type Filter struct {
	// Before excludes changes of this index and of larger ones; 0 excludes none.
	Before uint64
	// Limit is the number after which a list ends, with the last change of an index.
	Limit int
	// MaxAge excludes older changes; 0 excludes none.
	MaxAge time.Duration
	// Visible chooses the resources that may be seen; nil for all. A change is listed with those, and
	// with its message if they are all that it changed.
	Visible func(resource.Key) bool
	// Name chooses the resources of a name; empty for all.
	Name string
}

// List returns pushes, of records as Records returns them, and observed changes, as they are in an
// Observed, from the newest to the oldest. If there are more, next is Before of the rest; else it is 0.
func List(records []store.Entry, observed []Entry, f Filter, now time.Time) (list []Entry, next uint64) {
	for len(records) > 0 || len(observed) > 0 {
		var c Entry
		var of *Record
		// What was observed at an index was so after the commit of the index.
		if n := len(observed) - 1; len(records) == 0 || n >= 0 && observed[n].Index >= records[0].Index {
			c, observed = observed[n], observed[:n]
		} else {
			c, of = pushed(records[0])
			records = records[1:]
		}
		if f.Before > 0 && c.Index >= f.Before {
			continue
		}
		if f.MaxAge > 0 && now.Sub(c.Time) > f.MaxAge || !c.restrict(&f, of) {
			continue
		}
		if n := len(list); n >= f.Limit && list[n-1].Index != c.Index {
			return list, list[n-1].Index
		}
		c.Changes = difference.WithoutWords(c.Changes)
		list = append(list, c)
	}
	return list, 0
}

// pushed returns the change of a record.
func pushed(e store.Entry) (Entry, *Record) {
	r, err := Decode(e)
	if err != nil {
		return Entry{Index: e.Index, Time: e.Updated, Source: Pushed, Changes: []difference.Change{}, Problem: err.Error()}, nil
	}
	return Entry{
		Index: r.Index, Time: r.Time, Source: Pushed, Caller: r.Caller, Address: r.Address, Message: r.Message, Restored: r.Restored,
		Says: difference.SummaryOf(r.Changes, r.Count), Changes: r.Changes, Count: r.Count, Kept: r.Kept(),
	}, r
}

// restrict removes the resources that a filter does not choose. It reports false if none is left.
func (c *Entry) restrict(f *Filter, r *Record) bool {
	if f.Visible == nil && f.Name == "" {
		return true
	}
	all := c.Changes
	if r != nil && r.Count > len(all) {
		details, err := r.Details()
		if err != nil {
			return false
		}
		all = slices.Clone(all)
		for _, d := range details[len(all):] {
			all = append(all, difference.Change{Resource: d.Resource, Change: d.Change})
		}
	}
	var chosen []difference.Change
	for _, d := range all {
		key := d.Key()
		if f.Visible != nil && !f.Visible(key) {
			c.Message = ""
		} else if f.Name == "" || key.Name == f.Name || key.Type == overlay.Type && overlay.ClusterOf(key) == f.Name {
			chosen = append(chosen, d)
		}
	}
	if len(chosen) < c.Count {
		c.Changes, c.Count, c.Says = chosen, len(chosen), difference.Summary(chosen)
	}
	return len(chosen) > 0
}

// maxObserved is the maximum number of changes in an Observed.
const maxObserved = 500

// Observed has the last changes that came from files and management servers, which are not in the
// store. Its methods may be called from any goroutine.
type Observed struct {
	mu   sync.Mutex
	list []Entry
}

// Add adds a change, with all its resources.
func (o *Observed) Add(c Entry, all []difference.Change) {
	c.Count, c.Says = len(all), difference.Summary(all)
	c.Changes = slices.Clone(all[:min(len(all), maxObservedResources)])
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.list); n > 0 {
		c.Index = max(c.Index, o.list[n-1].Index)
	}
	o.list = append(o.list, c)
	if extra := len(o.list) - maxObserved; extra > 0 {
		o.list = slices.Delete(o.list, 0, extra)
	}
}

// maxObservedResources is the maximum number of resources of one observed change.
const maxObservedResources = 100

// Last returns the changes, from the oldest to the newest.
func (o *Observed) Last() []Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}
