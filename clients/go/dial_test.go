package lbdclient_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestDial: a connection is one to an endpoint that accepts it, soon, and its pick counts until it ends.
func TestDial(t *testing.T) {
	daemon := lbdtest.Start(t)
	good := upstream(t, nil)
	daemon.Push(t, "orders", "", refused(t), lbdtest.Silent(t), good)
	daemon.Push(t, "gone", "", refused(t))
	client, _ := connect(t, lbdclient.Config{Address: daemon.Address, Mode: lbdclient.ModeLease, ConnectTimeout: time.Minute})
	for range 10 {
		conn, pick, err := client.Dial(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if conn.RemoteAddr().String() != good || pick.Address() != good || daemon.InFlight(t) != 1 {
			t.Errorf("connected to %s, pick of %s, %d in flight", conn.RemoteAddr(), pick.Address(), daemon.InFlight(t))
		}
		_ = conn.Close()
		pick.End(lbdclient.Success)
		lbdtest.Until(t, "the pick has ended", func() bool { return daemon.InFlight(t) == 0 })
	}
	if _, _, err := client.Dial(t.Context(), "gone"); err == nil || errors.Is(err, lbdclient.ErrUnavailable) {
		t.Errorf("no endpoint accepts: %v", err)
	}
	if _, _, err := client.Dial(t.Context(), "nope"); !errors.Is(err, lbdclient.ErrUnknownCluster) {
		t.Errorf("unknown cluster: %v", err)
	}
	ctx, cancel := contextWithoutTime(t)
	defer cancel()
	if _, _, err := client.Dial(ctx, "orders"); err == nil {
		t.Error("connected without time")
	}
}

// TestBaseDials: a Base that dials with the client moves on as early as the client's own.
func TestBaseDials(t *testing.T) {
	daemon := lbdtest.Start(t)
	daemon.Push(t, "orders", "", lbdtest.Silent(t), upstream(t, nil))
	client, _ := connect(t, lbdclient.Config{Address: daemon.Address, ConnectTimeout: time.Hour})
	base := &http.Transport{DialContext: client.DialContext}
	defer base.CloseIdleConnections()
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client, Base: base}, Timeout: lbdtest.Deadline}
	for range 10 {
		mustGet(t, sender, "http://orders.lbd/")
	}
	if left := client.RetryTokens("orders"); left != 100 {
		t.Errorf("%v tokens are left: connects take none", left)
	}
}
