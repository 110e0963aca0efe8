package client

import (
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/overload"
)

// refuseWith lets every connection to the server fail with err; nil lets them be made.
func (s *scripted) refuseWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

// TestShortageIsNoFaultOfTheServer: while lbd has no descriptor for a connection, no
// other server is asked and nothing is reported to be out of date; the server is asked
// soon after the shortage is over.
func TestShortageIsNoFaultOfTheServer(t *testing.T) {
	m := (*overload.Monitor)(nil)
	play(t, "one two", func(t *testing.T, w *world) {
		defer m.Close()
		w.servers["one"].refuseWith(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)})
		w.want(cds, "a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := m.Current(); len(got) != 1 || got[0].Resource != overload.Descriptors {
			t.Errorf("the monitor knows of %v", got)
		}
		nothing(t, w.servers["two"].streams, "stream")
		w.expectNothingTold()
		if s := w.servers["one"]; s.dials < 300 || s.dials > 1300 {
			t.Errorf("%d connections were tried in 10 minutes", s.dials)
		}
		w.servers["one"].refuseWith(nil)
		over := time.Now()
		one := w.servers["one"].accept()
		if took := time.Since(over); took > 3*overload.RetryPause/2 {
			t.Errorf("asked %v after the shortage", took)
		}
		one.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
	}, func(_ *world, o *Options) {
		m = overload.NewMonitor(func() error { return nil })
		o.Overload = m
	})
}

// TestShortageOfTheServer: a server that lacks descriptors itself cannot be reached.
func TestShortageOfTheServer(t *testing.T) {
	play(t, "one two", func(t *testing.T, w *world) {
		w.want(cds, "a")
		w.servers["one"].accept().end <- status.Error(codes.Unavailable, "accept: "+syscall.EMFILE.Error())
		w.servers["two"].accept()
	})
}
