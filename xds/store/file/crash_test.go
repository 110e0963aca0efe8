package file

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const (
	crashDirEnv = "LBD_STORE_TEST_CRASH_DIR"
	crashers    = 4 // writers in the child
)

// crashKeys are what one writer puts in each Update.
func crashKeys(writer int) []resource.Key {
	return []resource.Key{clusterKey(fmt.Sprint(writer)), assignmentKey(fmt.Sprint(writer)), clusterKey(fmt.Sprint(writer, "-more"))}
}

// crashValue is the value of a key at one sequence number; sizes differ from one
// to the next, up to 64 KiB.
func crashValue(key resource.Key, seq uint64) []byte {
	filler := key.String()
	size := rand.New(rand.NewPCG(seq, uint64(len(filler)))).IntN(64 << 10)
	return append(binary.BigEndian.AppendUint64(nil, seq), bytes.Repeat([]byte(filler), size/len(filler))...)
}

// writeUntilKilled is the child process: it counts up, and reports each number of
// each writer on stdout once it is acknowledged.
func writeUntilKilled(dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	failed := make(chan error)
	for writer := range crashers {
		go func() {
			for seq := crashSeq(s.Snapshot(), writer) + 1; ; seq++ {
				_, err := s.Update(context.Background(), func(tx *store.Tx) error {
					var err error
					for _, key := range crashKeys(writer) {
						err = errors.Join(err, tx.Put(key, crashValue(key, seq)))
					}
					return err
				})
				if err == nil {
					_, err = fmt.Printf("%d %d\n", writer, seq)
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	fmt.Fprintln(os.Stderr, <-failed)
	os.Exit(1)
}

func crashSeq(s *store.Snapshot, writer int) uint64 {
	entry, found := s.Get(crashKeys(writer)[0])
	if !found {
		return 0
	}
	return binary.BigEndian.Uint64(entry.Raw)
}

// TestKilledWhileWriting kills a process that writes, again and again: what it
// reported is there, whole.
func TestKilledWhileWriting(t *testing.T) {
	rounds := 10
	if long() {
		rounds = 60
	}
	dir := t.TempDir()
	var acknowledged [crashers]uint64
	for round := range rounds {
		killed := exec.CommandContext(t.Context(), os.Args[0])
		killed.Env = append(os.Environ(), crashDirEnv+"="+dir)
		killed.Stderr = os.Stderr
		stdout, err := killed.StdoutPipe()
		noError(t, err)
		noError(t, killed.Start())
		lines := bufio.NewScanner(stdout)
		for left := rand.IntN(80); lines.Scan(); left-- {
			var writer int
			var seq uint64
			if _, err := fmt.Sscan(lines.Text(), &writer, &seq); err != nil {
				t.Fatalf("the child wrote %q", lines.Text())
			}
			if seq != acknowledged[writer]+1 && seq != acknowledged[writer]+2 {
				t.Errorf("round %d: writer %d went on with %d after %d", round, writer, seq, acknowledged[writer])
			}
			acknowledged[writer] = seq
			if left == 0 {
				noError(t, killed.Process.Kill())
			}
		}
		if err := killed.Wait(); err == nil || killed.ProcessState.Exited() {
			t.Fatalf("round %d: the child ended by itself: %v", round, err)
		}

		s := open(t, dir, Options{})
		for writer, reported := range acknowledged {
			seq := crashSeq(s.Snapshot(), writer)
			if seq < reported || seq > reported+1 {
				t.Errorf("round %d: writer %d reported %d, the store has %d", round, writer, reported, seq)
			}
			for _, key := range crashKeys(writer) {
				if entry, found := s.Snapshot().Get(key); seq > 0 && (!found || !bytes.Equal(entry.Raw, crashValue(key, seq))) {
					t.Errorf("round %d: %v is not that of %d", round, key, seq)
				}
			}
			acknowledged[writer] = seq
		}
		closeStore(t, s)
	}
	t.Logf("acknowledged by writer: %v", acknowledged)
}
