package process_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/bench/process"
)

// TestMain is also the program that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "worker" {
		os.Exit(m.Run())
	}
	err := process.Serve(os.Stdin, os.Stdout, func(n int) (any, error) {
		if n < 0 {
			return nil, errors.New("negative")
		}
		for end := time.Now().Add(time.Duration(n) * time.Millisecond); time.Now().Before(end); {
		}
		return 2 * n, nil
	})
	if err != nil {
		os.Exit(1)
	}
}

func TestWorker(t *testing.T) {
	w, err := process.StartWorker(os.Args[0], "worker")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got int
	if err := w.Do(50, &got); err != nil || got != 100 {
		t.Errorf("%d, error %v", got, err)
	}
	if err := w.Do(-1, &got); err == nil || err.Error() != "negative" {
		t.Errorf("error %v", err)
	}
	if used, err := process.CPU(w.PID()); err != nil || used <= 0 {
		t.Errorf("%s of CPU, error %v", used, err)
	}
	// The worker is a child of this process.
	if used, err := process.CPU(os.Getpid()); err != nil || used <= 0 {
		t.Errorf("%s of CPU, error %v", used, err)
	}
	if now, peak, err := process.RSS(w.PID()); err != nil || now <= 0 || peak < now {
		t.Errorf("%d of %d bytes, error %v", now, peak, err)
	}
	pid := w.PID()
	w.Stop()
	if _, err := process.CPU(pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("CPU of a process that ended: error %v", err)
	}
}

func TestAwaitListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start("sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if err := p.AwaitListen(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	failing, err := process.Start("sh", "-c", "echo no configuration >&2; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	defer failing.Stop()
	if err := failing.AwaitListen(t.Context(), "tcp", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("error %v", err)
	}
}
