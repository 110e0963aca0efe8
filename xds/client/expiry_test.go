package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatDoesNotComeInTimeDoesNotExist(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		began := time.Now()
		time.Sleep(10 * time.Second)
		w.want(cds, "c")
		s.hear()
		s.say("1", "n1", cluster("b"))
		w.expectTold("b=1")
		w.expectTold("a: expired")
		if got := time.Since(began); got != watchExpiry {
			t.Errorf("after %v", got)
		}
		w.expectTold("c: expired")
		if got := time.Since(began); got != watchExpiry+10*time.Second {
			t.Errorf("after %v", got)
		}
		if got := w.state(cds, "a"); got.State != DoesNotExist {
			t.Errorf("it is %+v", got)
		}
		time.Sleep(time.Hour)
		w.expectNothingTold()

		// It may come later.
		s.say("2", "n2", cluster("a"), cluster("b"))
		w.expectTold("a=2")
		if got := w.state(cds, "a"); got.State != Acked {
			t.Errorf("it is %+v", got)
		}
	})
}

func TestTimeRunsWhileThereIsAStream(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.servers["one"].kill()
		w.want(cds, "a")
		w.expectTold("a: unreachable")
		time.Sleep(10 * time.Minute)
		w.expectNothingTold()
		w.servers["one"].start()
		s := w.servers["one"].accept()
		s.hear()
		time.Sleep(watchExpiry - time.Second)
		// The next stream gives it all its time again.
		s.end <- nil
		s = w.servers["one"].accept()
		began := time.Now()
		w.expectTold("a: silent")
		if got := time.Since(began); got != watchExpiry {
			t.Errorf("after %v", got)
		}
		// It is told once, and silence on another stream is no answer.
		s.end <- nil
		w.servers["one"].accept().hear()
		time.Sleep(time.Hour)
		w.expectNothingTold()
		if !w.client.Away("t", "a") {
			t.Error("not away")
		}
	})
}

// A server that is silent may hang: it is not taken to have said that something
// does not exist. Once it says anything it has its time, once.
func TestTheTimeOfAServerThatWasSilent(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		w.expectTold("a: silent, b: silent")
		if got := w.state(cds, "a"); got.State != Timeout || !strings.Contains(got.Err.Error(), `"passthrough:///one", which is connected, has sent nothing within 15s`) {
			t.Errorf("it is %+v", got)
		}
		time.Sleep(time.Minute)
		s.say("1", "n1", cluster("a"))
		w.expectTold("a=1")
		began := time.Now()
		w.expectTold("b: expired")
		if got := time.Since(began); got != watchExpiry {
			t.Errorf("after %v", got)
		}
		// What had its time does not have it again.
		s.end <- nil
		w.servers["one"].accept().hear()
		time.Sleep(time.Hour)
		w.expectNothingTold()
	})
}

// The time begins when the request is sent, not when somebody wants something.
func TestTimeRunsFromTheRequest(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		read := make(chan struct{})
		w.servers["one"].handle = func(s stub) error {
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
		w.want(eds, "late") // no room for its request: the server does not read
		time.Sleep(time.Minute)
		if got := w.state(eds, "late"); got.State != Requested {
			t.Fatalf("it is %+v", got)
		}
		close(read)
		time.Sleep(watchExpiry + time.Second)
		if got := w.state(eds, "late"); got.State != Timeout {
			t.Fatalf("it is %+v", got)
		}
	})
}

func TestBadResourcesAreInTime(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(cds, "a")
		s := w.servers["one"].accept()
		s.hear()
		s.say("1", "n1", badCluster("a"))
		w.expectTold("a: rejected")
		time.Sleep(time.Hour)
		w.expectNothingTold()
	})
}

func TestTheTimeOfWhatIsDroppedEnds(t *testing.T) {
	play(t, "one", func(t *testing.T, w *world) {
		w.want(cds, "a", "b")
		s := w.servers["one"].accept()
		s.hear()
		time.Sleep(10 * time.Second)
		w.want(cds, "-a", "a")
		s.expect(`Cluster [b] version="" nonce=""`)
		s.expect(`Cluster [a b] version="" nonce=""`)
		w.expectTold("b: silent")
		began := time.Now()
		w.expectTold("a: silent")
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("after %v more", got)
		}
	})
}
