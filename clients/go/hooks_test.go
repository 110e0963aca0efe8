package lbdclient_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestHooks: a POST is refused by one endpoint and answered by another one, then lbd goes. The hooks panic, and the log
// has neither the hash key nor a query.
func TestHooks(t *testing.T) {
	d := lbdtest.Start(t)
	dead, alive := refused(t), upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	d.Push(t, "orders", "", dead)
	var (
		mu  sync.Mutex
		got []string
		log bytes.Buffer
	)
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, text)
		panic("of the test")
	}
	client, sender := connect(t, lbdclient.Config{
		Address: d.Address, Mode: lbdclient.ModePick, Token: "lbd_secret", Hosts: map[string]lbdclient.Host{"orders.lbd": {Hash: "header:User"}},
		OnAttempt: func(a lbdclient.Attempt) {
			method := ""
			if a.Request != nil {
				method = a.Request.Method
			}
			note(fmt.Sprintf("%s %s %s %d %s %d %v", method, a.Cluster, a.Address, a.Choice.Attempt, a.Outcome, a.Status, a.Err != nil))
		},
		OnState: func(s lbdclient.State) { note(string(s)) },
		Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	send := func() error {
		request, err := http.NewRequest(http.MethodPost, "http://orders.lbd/?q=secret", strings.NewReader("secret"))
		if err != nil {
			return err
		}
		request.Header.Set("User", "secret")
		response, err := sender.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	if send() == nil {
		t.Error("no error")
	}
	d.Push(t, "orders", "", alive)
	if err := send(); err != nil {
		t.Error(err)
	}
	pick, err := client.Pick(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	pick.End(lbdclient.Cancelled)
	d.Stop()
	for range 2 {
		if err := send(); !strings.Contains(fmt.Sprint(err), "at "+d.Address+" (the setting Address): dial unix") || strings.Contains(err.Error(), "hash") {
			t.Error(err)
		}
	}
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Error(err)
	}
	client.Close()
	want := []string{
		"POST orders " + dead + " 1 unreachable 0 true", "POST orders " + alive + " 1 success 404 false",
		" orders " + alive + " 1 cancelled 0 false", "unreachable", "recovered", "POST orders " + alive + " 1 success 404 false",
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("the hooks got %q, want %q", got, want)
	}
	if text := log.String(); strings.Contains(text, "secret") || strings.Count(text, "of the test") != len(want) || strings.Count(text, "level=WARN") != 1 {
		t.Error(text)
	}
}

// panicking is a handler of a logger.
type panicking struct{ slog.Handler }

func (panicking) Handle(context.Context, slog.Record) error { panic("of the logger") }

// TestPanics: neither a hook nor a logger that panics breaks a request, and a panic of a hook is logged by the default
// logger if there is no other.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	debug := slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelDebug})
	for logger, want := range map[*slog.Logger]int{nil: 2, slog.New(panicking{debug}): 0} {
		log.Reset()
		hooked := 0
		client, err := lbdclient.New(lbdclient.Config{
			Address: "unix:/nowhere/lbd.sock", Mode: lbdclient.ModePick, Fallback: upstream(t, nil), Logger: logger,
			OnAttempt: func(lbdclient.Attempt) { hooked++; panic("of the hook") },
			OnState:   func(lbdclient.State) { hooked++; panic("of the hook") },
		})
		if err != nil {
			t.Fatal(err)
		}
		mustGet(t, &http.Client{Transport: &lbdclient.Transport{Client: client}}, "http://orders.lbd/")
		client.Close()
		if got := strings.Count(log.String(), "of the hook"); hooked != 2 || got != want {
			t.Errorf("%d calls of hooks; the log is %s", hooked, &log)
		}
	}
}
