package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// Each user of a unix socket has an account, with the part of one caller, also without an entry in the
// identity file.
func TestUnixUsersHaveAccounts(t *testing.T) {
	m := quota.New(quota.Options{Default: &quota.Class{Rate: 1e-3}, MaxAccounts: 10})
	d := startLimited(t, &listen.Callers{}, api.Limits{Quotas: m}, nil)
	path := fmt.Sprintf("@lbd-accounts-%d", os.Getpid()) // an abstract socket, which has no mode
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	servicetest.Must(t, err)
	specs, err := listen.Parse([]string{"unix:" + path})
	servicetest.Must(t, err)
	server := &http.Server{Handler: d.handler, BaseContext: listen.BaseContext, ConnContext: listen.ConnContext, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(&listen.Listener{Listener: l, Spec: specs[0], Policy: specs[0].Policy(false, false)})
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	users := []int{os.Getuid()}
	if users[0] == 0 { // only root can be another one
		users = append(users, 65533)
	}
	for _, uid := range users {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialAs(ctx, uid, path)
		}}}
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lbd/v1/clusters", http.NoBody)
			servicetest.Must(t, err)
			response, err := client.Do(request)
			servicetest.Must(t, err)
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("user %d: %d; want %d", uid, response.StatusCode, want)
			}
		}
	}
}

// dialAs connects to a unix socket as a user.
func dialAs(ctx context.Context, uid int, path string) (c net.Conn, err error) {
	if uid == os.Getuid() {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock it: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			err = e
			return
		}
		c, err = new(net.Dialer).DialContext(ctx, "unix", path)
	}()
	<-done
	return c, err
}
