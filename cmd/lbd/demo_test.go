package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/cmd/lbd/demo"
)

func TestDemoFailsOverAndBack(t *testing.T) {
	t.Parallel()
	url := "http://" + startServe(t, Config{PickWait: time.Second})[0]
	control, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Play(ctx, demo.Options{
			Client: http.DefaultClient, URL: url, Control: control, In: strings.NewReader(""), Out: io.Discard,
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	inUse := func(priority string) func() bool {
		return func() bool {
			return strings.Contains(do(t, "GET", url+"/v1/clusters/demo", "").body, `"priority_in_use":`+priority)
		}
	}
	eventually(t, "priority 0", inUse("0"))
	do(t, "POST", "http://"+control.Addr().String()+"/stop?priority=0", "")
	eventually(t, "the fail-over", inUse("1"))
	do(t, "POST", "http://"+control.Addr().String()+"/start?priority=0", "")
	eventually(t, "the return", inUse("0"))
	m := do(t, "GET", url+"/metrics", "").body
	for _, want := range []string{
		`lbd_priority_switches_total{cluster="demo",reason="failure",target=""}`,
		`lbd_priority_switches_total{cluster="demo",reason="recovered",target=""}`,
		`lbd_leases_finished_total{cluster="demo",outcome="success"}`,
	} {
		if !strings.Contains(m, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	expect(t, http.StatusBadRequest, "POST", "http://"+control.Addr().String()+"/stop?priority=7", "")
}
