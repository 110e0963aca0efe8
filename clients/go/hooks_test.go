package lbdclient_test

import (
	"bytes"
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
