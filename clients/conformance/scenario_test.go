package conformance

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

//go:embed scenarios.json
var scenariosJSON []byte

// scenario is one of scenarios.json, whose form README.md describes.
type scenario struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Modes []string `json:"modes"`
	// Once is set if the adapter makes no difference: the first one of the client plays it.
	Once bool `json:"once"`
	// Without has the adapters that cannot play it, with the reasons.
	Without   map[string]string `json:"without"`
	Via       string            `json:"via"`
	Token     string            `json:"token"`
	TokenFile bool              `json:"token_file"` // with a token that rotate replaces
	Options   map[string]any    `json:"options"`
	Upstreams []string          `json:"upstreams"`
	Cluster   *cluster          `json:"cluster"`
	Before    []step            `json:"before"` // the client opens
	Steps     []step            `json:"steps"`
	After     []step            `json:"after"` // the client has closed
	// Expires is set if leases may remain, whose end lbd could not be told.
	Expires bool `json:"expires"`
	// Timed is set if the client has to end soon. It is played up to three times, because a busy machine may be
	// slow at times.
	Timed bool `json:"timed"`
}

// cluster is what is pushed to lbd. Endpoints, weights … are by the number of the upstream.
type cluster struct {
	Name        string         `json:"name"`
	Endpoints   []int          `json:"endpoints"` // default all upstreams
	Weights     map[string]int `json:"weights"`
	Priorities  map[string]int `json:"priorities"`
	Unhealthy   []int          `json:"unhealthy"`
	Drop        int            `json:"drop"` // percent
	MaxRequests int            `json:"max_requests"`
	Outliers    bool           `json:"outliers"`
	RingHash    bool           `json:"ring_hash"`
	Routes      []route        `json:"routes"` // of the target; each has a cluster of its own
}

// route is one of the target.
type route struct {
	Prefix    string            `json:"prefix"`  // default /
	Headers   map[string]string `json:"headers"` // that a request has to have
	Endpoints []int             `json:"endpoints"`
}

// call is a command of the runner that sends requests.
type call struct {
	N          int            `json:"n"`
	Fewer      map[string]int `json:"fewer"` // n of clients that are slow by nature
	Threads    int            `json:"threads"`
	Method     string         `json:"method"`
	Path       string         `json:"path"`
	Body       string         `json:"body"`
	Idempotent bool           `json:"idempotent"`
	Timeout    float64        `json:"timeout"`

	Headers map[string]string `json:"headers"`
	Key     string            `json:"key"`  // hash key
	Keys    int               `json:"keys"` // so many: -0, -1 … is added to key
}

// step is one action. Want and Within belong to those that send requests: with Within, they
// are sent again until the outcome is the one wanted.
type step struct {
	Modes []string `json:"modes"` // the step is for these only

	Request *call   `json:"request"`
	Load    *call   `json:"load"`
	Fork    *call   `json:"fork"`
	During  []step  `json:"during"` // played when the load has begun
	Want    want    `json:"want"`
	Within  float64 `json:"within"`

	Open    map[string]any    `json:"open"`    // opens the client again, with these options
	Token   string            `json:"token"`   // and this token
	LBD     string            `json:"lbd"`     // start, stop, kill
	Fault   string            `json:"fault"`   // of the proxy
	Push    *cluster          `json:"push"`    // replaces the cluster
	Remove  bool              `json:"remove"`  // removes it
	Behave  map[string]string `json:"behave"`  // changes upstreams
	Pause   float64           `json:"pause"`   // seconds
	Hold    int               `json:"hold"`    // takes leases that the client knows nothing of
	Release bool              `json:"release"` // ends them
	Rotate  bool              `json:"rotate"`  // replaces the token in lbd, then in the file
	End     string            `json:"end"`     // of the runner: close, input, SIGTERM
	Events  *events           `json:"events"`  // what its hooks got since they were asked last
	Counted map[string]int    `json:"counted"` // requests that lbd knows of, by outcome; -1 for all tries
}

// events are what the hooks of a client got; what is absent is not compared.
type events struct {
	Attempts []string `json:"attempts"` // ADDRESS NUMBER OUTCOME, as in want
	States   []string `json:"states"`
}

// want is the outcome of a step.
type want struct {
	Status   int             `json:"status"`   // of all requests
	Error    alternatives    `json:"error"`    // one of these, for all requests
	Share    map[string]span `json:"share"`    // of the requests, by status or error; no other
	Body     []string        `json:"body"`     // has these; $0 is the address of upstream 0
	BodyNot  []string        `json:"body_not"` // has none of these
	Message  []string        `json:"message"`  // has these
	Seconds  *span           `json:"seconds"`
	Tries    *span           `json:"tries"`     // of all upstreams
	TriesAt  map[string]span `json:"tries_at"`  // by upstream
	TriesAll *span           `json:"tries_all"` // of each upstream
	SharesAt map[string]span `json:"shares_at"` // of the tries, by upstream
	SentOnce bool            `json:"sent_once"` // each request with a status was one try, the others none
	InFlight *span           `json:"in_flight"` // the most at a time
	Calls    *span           `json:"calls"`     // to lbd, through the proxy
	Used     *span           `json:"used"`      // how many upstreams had tries
	Choice   map[string]any  `json:"choice"`    // of the last try; $ is the name of the cluster, $0 the address of upstream 0
}

// alternatives is a string, or a list of them.
type alternatives []string

func (a *alternatives) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(a))
	}
	*a = make([]string, 1)
	return json.Unmarshal(text, &(*a)[0])
}

// span is a number, or [LOWEST, HIGHEST].
type span struct{ low, high float64 }

func (s *span) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		err := json.Unmarshal(text, &s.low)
		s.high = s.low
		return err
	}
	var both []float64
	if err := json.Unmarshal(text, &both); err != nil {
		return err
	}
	if len(both) != 2 || both[0] > both[1] {
		return fmt.Errorf("span %s is not [LOWEST, HIGHEST]", text)
	}
	s.low, s.high = both[0], both[1]
	return nil
}

func (s *span) has(v float64) bool { return s.low <= v && v <= s.high }

func (s *span) String() string {
	if s.low == s.high {
		return fmt.Sprint(s.low)
	}
	return fmt.Sprintf("%v to %v", s.low, s.high)
}

var allModes = []string{"batch", "pick", "lease"}

// scenarios reads scenarios.json.
func scenarios() ([]scenario, error) {
	var all []scenario
	d := json.NewDecoder(bytes.NewReader(scenariosJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("scenarios.json: %w", err)
	}
	seen := make(map[string]bool)
	for i, s := range all {
		if s.Name == "" || s.About == "" || seen[s.Name] {
			return nil, fmt.Errorf("scenarios.json: scenario %d (%q) needs a name of its own, and about", i, s.Name)
		}
		seen[s.Name] = true
		if s.Modes == nil {
			all[i].Modes = allModes
		}
	}
	return all, nil
}

func (s step) isFor(mode string) bool { return s.Modes == nil || slices.Contains(s.Modes, mode) }
