package main

import (
	"os/exec"
	"syscall"
)

// endWithRunner ends the proxy with the runner, also if that is killed.
func endWithRunner(proxy *exec.Cmd) {
	proxy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
