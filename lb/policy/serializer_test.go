package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
)

// diary is what happened in a serializer, in order. Only the owner writes it.
type diary []string

func (d *diary) note(s string) { *d = append(*d, s) }

// TestSerializerOrder tells each batch as one line. Functions are posted while
// the owner is held, so that what is posted together is one batch.
func TestSerializerOrder(t *testing.T) {
	tests := []struct {
		name string
		post func(s *policy.Serializer, d *diary) []func()
		want string
	}{
		{
			name: "in the order of posting, one end",
			post: func(_ *policy.Serializer, d *diary) []func() {
				return []func(){func() { d.note("a") }, func() { d.note("b") }, func() { d.note("c") }}
			},
			want: "a b c end",
		},
		{
			name: "what is put off comes before the next function, in the same batch",
			post: func(s *policy.Serializer, d *diary) []func() {
				return []func(){
					func() {
						s.Later(func() {
							d.note("a later")
							s.Later(func() { d.note("a later still") })
						})
						d.note("a")
					},
					func() { d.note("b") },
				}
			},
			want: "a a later a later still b end",
		},
		{
			name: "what is posted by a function is the next batch",
			post: func(s *policy.Serializer, d *diary) []func() {
				return []func(){
					func() {
						s.Post(func() { d.note("posted") })
						d.note("a")
					},
					func() { d.note("b") },
				}
			},
			want: "a b end posted end",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d diary
			ends := make(chan struct{})
			s := policy.NewSerializer(func() {
				d.note("end")
				ends <- struct{}{}
			})
			release := hold(s)
			for _, f := range tt.post(s, &d) {
				s.Post(f)
			}
			close(release)
			for range 1 + strings.Count(tt.want, "end") {
				<-ends
			}
			if got, want := strings.Join(d, " "), "end "+tt.want; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			go func() { <-ends }()
			s.Close(func() {})
		})
	}
}

// hold keeps the owner busy, with a batch of its own, until release is closed.
func hold(s *policy.Serializer) (release chan struct{}) {
	running, release := make(chan struct{}), make(chan struct{})
	s.Post(func() {
		close(running)
		<-release
	})
	<-running
	return release
}

type reporter struct {
	name    string
	conn    *policy.Conn
	pending bool
	d       *diary
	also    func() // what reporting brings about
}

func (r *reporter) mark() { r.conn.Mark(r, &r.pending) }

func (r *reporter) Report() {
	r.d.note(r.name)
	if r.also != nil {
		r.also()
	}
}

func TestSerializerReportsDeepestFirst(t *testing.T) {
	var d diary
	ended := make(chan struct{}, 1)
	s := policy.NewSerializer(func() { ended <- struct{}{} })
	tree := &policy.Tree{Owner: s}
	newReporter := func(name string, depth int) *reporter {
		conn := policy.NewConn(nil, tree)
		for range depth {
			conn = conn.Child(nil)
		}
		return &reporter{name: name, conn: conn, d: &d}
	}
	root, mid, leaf, other := newReporter("root", 0), newReporter("mid", 1), newReporter("leaf", 2), newReporter("other", 2)
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{
			name: "marked from the top down, twice each",
			do: func() {
				for range 2 {
					root.mark()
					mid.mark()
					leaf.mark()
					other.mark()
				}
			},
			want: "leaf other mid root",
		},
		{
			name: "a report that marks its parent",
			do: func() {
				leaf.also, mid.also = mid.mark, root.mark
				leaf.mark()
			},
			want: "leaf mid root",
		},
		{
			name: "a report in the middle that wakes one below it: the lower has its turn before anything above",
			do: func() {
				leaf.also, mid.also = nil, func() {
					mid.also = nil
					s.Later(func() {
						d.note("later")
						leaf.mark()
					})
					mid.mark()
				}
				mid.mark()
				root.mark()
			},
			want: "mid later leaf mid root",
		},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			s.Post(func() {
				d = nil
				step.do()
			})
			<-ended
			if got := strings.Join(d, " "); got != step.want {
				t.Errorf("got %q, want %q", got, step.want)
			}
		})
	}
	s.Close(func() {})
}

func TestSerializerClose(t *testing.T) {
	var d diary
	s := policy.NewSerializer(func() { d.note("end") })
	release := hold(s)
	s.Post(func() { d.note("posted before") })

	var closers sync.WaitGroup
	first := make(chan struct{})
	closers.Go(func() {
		s.Close(func() { d.note("last") })
		close(first)
	})
	for s.Post(func() { d.note("raced") }) { // until Close has begun
	}
	closers.Go(func() { s.Close(func() { d.note("never") }) })
	select {
	case <-first:
		t.Error("Close returned while a function ran")
	default:
	}
	close(release)
	closers.Wait()

	if s.Post(func() { d.note("after") }) {
		t.Error("Post was taken after Close")
	}
	got := slices.DeleteFunc(slices.Clone([]string(d)), func(s string) bool { return s == "raced" })
	if want := "[end posted before last end]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSerializerManyPosters: one at a time, each poster's in its order.
func TestSerializerManyPosters(t *testing.T) {
	const posters, each = 8, 500
	last := make([]int, posters)
	n := 0
	s := policy.NewSerializer(func() {})
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				s.Post(func() {
					if last[p] != i {
						t.Errorf("poster %d: %d ran after %d", p, i, last[p]-1)
					}
					last[p]++
					n++
				})
			}
		})
	}
	wg.Wait()
	s.Close(func() {})
	if n != posters*each {
		t.Errorf("%d functions ran, want %d", n, posters*each)
	}
}

// TestSerializerRest waits for functions that each post the next, and for a serializer without any.
func TestSerializerRest(t *testing.T) {
	s := policy.NewSerializer(func() {})
	<-s.Rest()
	done := 0
	var next func()
	next = func() {
		if done++; done < 100 {
			s.Post(next)
		}
	}
	s.Post(next)
	<-s.Rest()
	if s.Close(func() {}); done != 100 {
		t.Errorf("at rest after %d functions of 100", done)
	}
}
