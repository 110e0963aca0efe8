package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestResourceTimeout(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		began := time.Now()
		time.Sleep(10 * time.Second)
		w.want(cds, "c")
		s.receive()
		s.send("1", "n1", cluster("b"))
		w.expectUpdates("b=1")
		w.expectUpdates("a: expired")
		w.expectElapsed(began, watchExpiry)
		w.expectUpdates("c: expired")
		w.expectElapsed(began, watchExpiry+10*time.Second)
		w.expectState(cds, "a", DoesNotExist)
		time.Sleep(time.Hour)
		w.expectNoUpdates()

		// The resource may be sent later.
		s.send("2", "n2", cluster("a"), cluster("b"))
		w.expectUpdates("a=2")
		w.expectState(cds, "a", Acked)
	})
}

func TestTimeoutNeedsStream(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.expectUpdates("a: unreachable")
		time.Sleep(10 * time.Minute)
		w.expectNoUpdates()
		w.servers["one"].start()
		s := w.servers["one"].accept()
		s.receive()
		time.Sleep(watchExpiry - time.Second)
		// The timeout restarts on the next stream.
		s.end <- nil
		s = w.servers["one"].accept()
		w.expectAfter(watchExpiry, "a: silent")
		// It is reported once, also if the server is silent on another stream.
		s.end <- nil
		w.servers["one"].accept().receive()
		time.Sleep(time.Hour)
		w.expectNoUpdates()
		w.expectAway("a", true)
	})
}

// A silent server may hang: its resources are not reported as missing. Its first response
// restarts the timeout once.
func TestFirstResponseRestartsTimeout(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		w.expectUpdates("a: silent, b: silent")
		if got := w.state(cds, "a"); got.State != Timeout || !strings.Contains(got.Err.Error(), `"passthrough:///one", which is connected, has sent nothing within 15s`) {
			t.Errorf("it is %+v", got)
		}
		time.Sleep(time.Minute)
		s.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
		w.expectAfter(watchExpiry, "b: expired")
		// The timeout does not restart again.
		s.end <- nil
		w.servers["one"].accept().receive()
		time.Sleep(time.Hour)
		w.expectNoUpdates()
	})
}

// The timeout starts when the request is sent, not when the resource is wanted.
func TestTimeoutStartsWithRequest(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		read := make(chan struct{})
		w.servers["one"].handle = func(s adsServerStream) error {
			<-read
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}
		names := make([]string, 1000)
		for i := range names {
			names[i] = string(make([]byte, 1000)) + string(rune('a'+i))
		}
		w.want(cds, names...)
		synctest.Wait()
		w.want(eds, "late") // its request cannot be sent: the server does not read
		time.Sleep(time.Minute)
		w.expectState(eds, "late", Requested)
		close(read)
		time.Sleep(watchExpiry + time.Second)
		w.expectState(eds, "late", Timeout)
	})
}

func TestResubscribeRestartsTimeout(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(cds, "a", "b")
		time.Sleep(10 * time.Second)
		w.want(cds, "-a", "a")
		s.expect(`Cluster [b] version="" nonce=""`)
		s.expect(`Cluster [a b] version="" nonce=""`)
		w.expectUpdates("b: silent")
		w.expectAfter(10*time.Second, "a: silent")
	})
}
