package client

// maxNames is the most names that a model server knows.
const maxNames = 3

// behavior is what the protocol leaves to a management server.
type behavior struct {
	name string
	// waitsForACK: it sends no response before the last one was acknowledged or
	// rejected, as go-control-plane does.
	waitsForACK bool
	// sendsAll: a response has all resources in the list, not only new and changed
	// ones. For Listeners and Clusters, the protocol requires it.
	sendsAll bool
	// answersRemovals: it also responds if a name was removed, as go-control-plane's
	// linear cache does for Clusters.
	answersRemovals bool
	// answersAll: it responds to each request but the first one with its nonce.
	answersAll bool
	// ignoresNonces: it accepts requests with any nonce.
	ignoresNonces bool
}

var behaviors = []behavior{
	{name: "minimal"},
	{name: "waits for ACKs", waitsForACK: true},
	{name: "sends all", sendsAll: true},
	{name: "sends all and answers removals", sendsAll: true, answersRemovals: true},
	{name: "waits for ACKs, sends all and answers removals", waitsForACK: true, sendsAll: true, answersRemovals: true},
	{name: "answers removals with nothing", answersRemovals: true},
	{name: "answers all requests", answersAll: true, sendsAll: true},
	{name: "answers all requests with what is new", answersAll: true},
	{name: "ignores nonces", ignoresNonces: true},
}

// names is a set of names, as bits.
type names uint8

func (n names) has(i int) bool { return n>>i&1 == 1 }

// modelRequest and modelResponse are the messages of one resource type. The nonce is
// the number of a response on its stream; 0 for none.
type (
	modelRequest struct {
		names names
		nonce uint8
	}
	modelResponse struct {
		versions [maxNames]uint8 // of the resources in it; 0 for the others
		nonce    uint8
	}
)

// modelServer is a management server that follows the protocol exactly, for one resource
// type and one stream. It is a plain value, so that a search can copy it.
type modelServer struct {
	behavior *behavior
	versions [maxNames]uint8 // of its resources; 0 for one that does not exist

	// State of the stream.
	listed names           // the list that it accepted last
	sent   [maxNames]uint8 // versions that it sent of what is listed; 0 for none
	nonce  uint8
	acked  bool // it accepted a request with the nonce
}

// restart begins a new stream.
func (m *modelServer) restart() {
	m.listed, m.sent, m.nonce, m.acked = 0, [maxNames]uint8{}, 0, false
}

// receive handles a request, and returns a response if it sends one.
func (m *modelServer) receive(r modelRequest) (modelResponse, bool) {
	if r.nonce != m.nonce && !m.behavior.ignoresNonces {
		return modelResponse{}, false
	}
	first := !m.acked
	m.acked = true
	removed := false
	for i := range maxNames {
		if !r.names.has(i) {
			removed = removed || m.sent[i] != 0
			m.sent[i] = 0
		}
	}
	m.listed = r.names
	if m.behavior.answersAll && !first || m.behavior.answersRemovals && removed {
		return m.respond(), true
	}
	return m.respondToNews()
}

// update changes a resource, or creates it.
func (m *modelServer) update(i int) (modelResponse, bool) {
	m.versions[i]++
	if m.behavior.waitsForACK && !m.acked {
		return modelResponse{}, false
	}
	return m.respondToNews()
}

func (m *modelServer) respondToNews() (modelResponse, bool) {
	for i := range maxNames {
		if m.listed.has(i) && m.versions[i] != m.sent[i] {
			return m.respond(), true
		}
	}
	return modelResponse{}, false
}

func (m *modelServer) respond() modelResponse {
	m.nonce++
	m.acked = false
	r := modelResponse{nonce: m.nonce}
	for i := range maxNames {
		if m.listed.has(i) && (m.behavior.sendsAll || m.versions[i] != m.sent[i]) {
			r.versions[i] = m.versions[i]
			m.sent[i] = m.versions[i]
		}
	}
	return r
}
