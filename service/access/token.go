package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// TokenPrefix begins the tokens that lbd makes, so that scanners for leaked
// secrets recognize them.
const TokenPrefix = "lbd_"

// NewToken returns a random token of 256 bits, and the SHA-256 of its text in
// hexadecimal, as an identity file has it.
func NewToken() (token, hash string) {
	var secret [sha256.Size]byte
	_, _ = rand.Read(secret[:]) // never fails: it ends the process instead
	token = TokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}
