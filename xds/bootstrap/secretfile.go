package bootstrap

import "os"

// everybody is the permission of users other than the owner and the group to read.
const everybody = 0o004

// secret warns of a file that holds a secret and that every user of the machine may
// read. at and path are the place in the bootstrap that names the file.
func (v *verdict) secret(at int, path, file string) {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&everybody == 0 {
		return // a file that cannot be read is reported elsewhere
	}
	v.warn(at, path, "%s holds a secret and every user can read it (mode %04o): run chmod o-rwx on it, or set defaultMode of a Kubernetes volume to 0440",
		file, info.Mode().Perm())
}
