package lbdtest

import (
	"os/exec"
	"syscall"
)

// endWithTest ends lbd with the test, also after a timeout of go test, which cleans up nothing.
func endWithTest(lbd *exec.Cmd) {
	lbd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
