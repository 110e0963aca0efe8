package bootstrap

import "os"

// worldReadable is the read permission of other users.
const worldReadable = 0o004

// secret warns of a file with a secret that every user can read. at and path are the place in
// the bootstrap.
func (v *validator) secret(at int, path, file string) {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&worldReadable == 0 {
		return // a file that cannot be read is reported elsewhere
	}
	v.warn(at, path, "%s has a secret and every user can read it (mode %04o): run chmod o-rwx on it, or set defaultMode of a Kubernetes volume to 0440",
		file, info.Mode().Perm())
}
