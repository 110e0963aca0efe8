package file_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// TestCommitsAreSmall: the functions of many Updates that wait together run in several commits.
func TestCommitsAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits []int
		s, err := file.Open("", file.Options{OnCommit: func(c store.Commit) { commits = append(commits, len(c.Changed)) }})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		free := make(chan struct{})
		var group sync.WaitGroup
		update := func(name string, before func()) {
			group.Go(func() {
				if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
					before()
					return tx.Put(resource.Key{Type: resource.TypeCluster, Name: name}, []byte("x"))
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		update("first", func() { <-free })
		for i := range 200 {
			update(fmt.Sprint(i), func() {})
		}
		close(free)
		group.Wait()
		if fmt.Sprint(commits) != "[1 100 100]" {
			t.Errorf("the commits have %d changes", commits)
		}
	})
}
