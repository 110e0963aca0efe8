// Package roster describes the replicas of a fleet: who they are, how far they are, what they share,
// and where they disagree about endpoints. It does no I/O.
//
// A [Replica] and a [Summary] are what each replica publishes about itself. Others wrote them, so their
// decoders bound everything.
package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"unicode/utf8"
)

const (
	// maxReplicaBytes is the maximum size of an encoded Replica.
	maxReplicaBytes = 8 << 10
	// maxText is the maximum length of one of its texts.
	maxText = 300
)

// Replica is what does not change while a process lives.
type Replica struct {
	// ID identifies the process: it is another one after a restart. It is the key, and not encoded.
	ID      string `json:"-"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Address is the URL of its API, such as http://10.0.0.1:8080; empty if other replicas cannot
	// reach it.
	Address string `json:"address"`
	Zone    string `json:"zone"`
}

// Encode returns the bytes of a Replica.
func (r Replica) Encode() []byte { return encode(r) }

// DecodeReplica returns the Replica of bytes that [Replica.Encode] returned. Its ID is empty.
func DecodeReplica(b []byte) (Replica, error) {
	var r Replica
	if err := decode(b, maxReplicaBytes, &r); err != nil {
		return Replica{}, err
	}
	for _, text := range []string{r.Name, r.Version, r.Address, r.Zone} {
		if !isText(text) {
			return Replica{}, fmt.Errorf("%.20q is not a text of at most %d bytes", text, maxText)
		}
	}
	if r.Address != "" {
		if err := CheckAddress(r.Address); err != nil {
			return Replica{}, err
		}
	}
	return r, nil
}

// CheckAddress returns an error if a text is not the URL of an API: http://HOST:PORT or https://HOST:PORT.
func CheckAddress(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Port() == "" || u.String() != u.Scheme+"://"+u.Host {
		return fmt.Errorf("%q is not http://HOST:PORT or https://HOST:PORT", text)
	}
	return nil
}

func isText(s string) bool { return len(s) <= maxText && utf8.ValidString(s) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return b
}

func decode(b []byte, limit int, v any) error {
	if len(b) > limit {
		return fmt.Errorf("%d bytes, more than %d", len(b), limit)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errors.Join(errors.New("is damaged"), err)
	}
	return nil
}
