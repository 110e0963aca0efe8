package observe

import (
	"sync"

	"github.com/lbd-dev/lbd/overload"
)

// shortages reports what lbd itself lacks, such as descriptors or memory.
type shortages struct {
	events *Events

	mu    sync.Mutex
	known map[overload.Resource]overload.State // as of the last call
}

// overloaded remembers and logs the shortages that began and ended. The monitor makes
// one call at a time.
func (k *shortages) overloaded(states []overload.State) {
	began, ended := k.replace(states)
	for _, st := range began {
		k.events.Add(Event{
			Type: EventShortageBegan, Reason: string(st.Resource), Error: st.Err.Error(),
			Says: st.Resource.Text() + ": endpoints keep their states until it is over",
		})
		k.events.log.Warn("lbd is out of a resource", "resource", string(st.Resource), "error", st.Err)
	}
	for _, st := range ended {
		k.events.Add(Event{Type: EventShortageEnded, Reason: string(st.Resource), Says: "over: " + st.Resource.Text()})
		k.events.log.Info("shortage ended", "resource", string(st.Resource), "began", st.Since.UTC())
	}
}

// replace stores the current shortages, and returns the new ones and those that ended.
func (k *shortages) replace(states []overload.State) (began, ended []overload.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.known
	k.known = make(map[overload.Resource]overload.State, len(states))
	for _, st := range states {
		k.known[st.Resource] = st
		if _, ok := before[st.Resource]; !ok {
			began = append(began, st)
		}
	}
	for r, st := range before {
		if _, ok := k.known[r]; !ok {
			ended = append(ended, st)
		}
	}
	return began, ended
}

// shortageConditions returns the current shortages.
func (s *State) shortageConditions() []Condition {
	var out []Condition
	for _, st := range s.options.Overload.Current() {
		out = append(out, Condition{
			Kind: ConditionShortage, Subject: string(st.Resource), Since: st.Since,
			Text:   st.String() + "; endpoints keep their states, and lbd retries what failed",
			Remedy: remedies[st.Resource],
		})
	}
	return out
}

// remedies say what the operator can do about each shortage.
var remedies = map[overload.Resource]string{
	overload.Descriptors:       "raise the limit on open files (LimitNOFILE=, ulimit -n), or lower --max-connections",
	overload.SystemDescriptors: "raise fs.file-max, or find the process that holds so many files",
	overload.Buffers:           "give the machine's sockets more memory",
	overload.Memory:            "give the machine or the container more memory",
	overload.LocalPorts:        "widen net.ipv4.ip_local_port_range, or find the process with so many connections to that address",
	overload.HeldConnections:   "raise the limit on open files (LimitNOFILE=, ulimit -n), or use connect mode tcp",
	overload.APIConnections:    "raise --max-connections, and the limit on open files with it, or ask for fewer streams and shorter waits",
}
