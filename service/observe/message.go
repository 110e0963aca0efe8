package observe

import (
	"iter"
	"sync"
)

// Message is one message of a watch. Watchers share it: it must not be changed.
type Message struct {
	// Type says what the data is.
	Type string
	// ID resumes the watch after this message; empty for a message that does not change
	// where the watch resumes.
	ID string
	// Data is JSON in one line; nil if Pieces has it.
	Data []byte
	// Pieces yields the JSON of a message that may be long and differs between watchers, as it is
	// composed; nil if Data has it.
	Pieces iter.Seq[[]byte]

	once sync.Once
	text []byte
}

// Text returns what write makes of a message without Pieces. It calls write once for all watchers
// that share the message.
func (m *Message) Text(write func(*Message) []byte) []byte {
	m.once.Do(func() { m.text = write(m) })
	return m.text
}
