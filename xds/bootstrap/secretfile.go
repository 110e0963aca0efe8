package bootstrap

import "os"

// worldReadable is the read permission of other users.
const worldReadable = 0o004

// secret warns of a file with a secret, whose path is a value, that every user can read.
func (v *validator) secret(x *value) {
	info, err := os.Stat(x.text)
	if err != nil || info.Mode().Perm()&worldReadable == 0 {
		return // a file that cannot be read is reported elsewhere
	}
	v.warnValue(x, "%s has a secret and every user can read it (mode %04o): run chmod o-rwx on it, or set defaultMode of a Kubernetes volume to 0440",
		x.text, info.Mode().Perm())
}
