package priority_test

import (
	"errors"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

var errRefused = errors.New("refused")

type scenario struct {
	name  string
	steps []step
}

// Each is a story: configs and what the children say, and how the policy is
// then. After a config all children that it starts are CONNECTING.
var scenarios = []scenario{
	{"the highest is READY: lower ones are added and removed without a word", []step{
		config("a", "b"), expect("CONNECTING queue | a* -"),
		says("a", ready), expect("READY a | a* -"),
		config("a", "b", "c"), expect("READY a | a* - -"),
		config("a", "b"), expect("READY a | a* -"), built("a", 1),
		switches("-1→0 update: priority 0 is the first to be used"),
	}},
	{"fail over at once, and to the end", []step{
		config("a", "b"), says("a", ready), expect("READY a | a* -"),
		says("a", failure), expect("CONNECTING queue | a b*"),
		says("b", ready), expect("READY b | a b*"),
		config("a", "b", "c"), expect("READY b | a b* -"),
		says("b", failure), expect("CONNECTING queue | a b c*"),
		says("c", ready), expect("READY c | a b c*"),
		config("a", "b"), expect("TRANSIENT_FAILURE b: the actor failed | a b*"),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 failure: priority 0: TRANSIENT_FAILURE: a: the actor failed",
			"1→2 failure: priority 1: TRANSIENT_FAILURE: b: the actor failed",
			"2→1 update: the config changed",
		),
	}},
	{"READY to CONNECTING: the child gets its time again, then the next serves, then it is back", []step{
		config("a", "b"), says("a", ready),
		says("a", connecting), expect("CONNECTING queue | a* -"),
		after(9 * time.Second), expect("CONNECTING queue | a* -"),
		after(time.Second), expect("CONNECTING queue | a b*"),
		says("b", ready), expect("READY b | a b*"),
		says("a", ready), expect("READY a | a* (b)"),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 init_timeout: priority 0 was not READY within 10s",
			"1→0 recovered: priority 0 is READY",
		),
	}},
	{"all are down and a lower one is added: it is started", []step{
		config("a", "b"), says("a", failure), says("b", failure), expect("TRANSIENT_FAILURE b: the actor failed | a b*"),
		config("a", "b", "c"), expect("CONNECTING queue | a b c*"),
		says("c", ready), expect("READY c | a b c*"),
	}},
	{"a higher one is READY: all lower ones are deactivated", []step{
		config("a", "b", "c"), says("a", failure), says("b", failure), says("c", ready), expect("READY c | a b c*"),
		says("a", ready), expect("READY a | a* (b) (c)"),
	}},
	{"one in the middle is READY: those below it are deactivated", []step{
		config("a", "b", "c"), says("a", failure), says("b", failure), says("c", ready),
		says("b", ready), expect("READY b | a b* (c)"),
	}},
	{"the init timer", []step{
		config("a", "b"),
		after(10*time.Second - 1), expect("CONNECTING queue | a* -"),
		after(1), expect("CONNECTING queue | a b*"),
		says("b", ready), expect("READY b | a b*"),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 init_timeout: priority 0 was not READY within 10s",
		),
	}},
	{"each child has its own init timer, and the last waits for ever", []step{
		config("a", "b", "c"),
		after(10 * time.Second), expect("CONNECTING queue | a b* -"),
		after(10 * time.Second), expect("CONNECTING queue | a b c*"),
		after(time.Hour), expect("CONNECTING queue | a b c*"),
		says("b", ready), expect("READY b | a b* (c)"),
	}},
	{"CONNECTING again and again does not give more time (grpc-go #8516)", []step{
		config("a", "b"), after(9 * time.Second),
		says("a", connecting), says("a", connecting), expect("CONNECTING queue | a* -"),
		after(time.Second), expect("CONNECTING queue | a b*"),
		says("a", connecting), expect("CONNECTING queue | a b*"),
	}},
	{"CONNECTING after a failure does not give time", []step{
		config("a", "b"), says("a", failure), expect("CONNECTING queue | a b*"),
		says("a", connecting), expect("CONNECTING queue | a b*"),
		says("b", ready), expect("READY b | a b*"),
		says("a", ready), says("a", connecting), expect("CONNECTING queue | a* (b)"), // READY since then: it gets its time
		after(10 * time.Second), expect("READY b | a b*"),
	}},
	{"CONNECTING after IDLE gives time", []step{
		config("a", "b"), says("a", idle), expect("IDLE queue | a* -"),
		after(time.Hour), expect("IDLE queue | a* -"),
		says("a", connecting), after(9 * time.Second), expect("CONNECTING queue | a* -"),
		after(time.Second), expect("CONNECTING queue | a b*"),
	}},
	{"IDLE counts as good, at the start and after a failure", []step{
		config("a", "b"), says("a", idle), expect("IDLE queue | a* -"),
		says("a", failure), says("b", idle), expect("IDLE queue | a b*"),
		says("a", idle), expect("IDLE queue | a* (b)"),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 failure: priority 0: TRANSIENT_FAILURE: a: the actor failed",
			"1→0 recovered: priority 0 is IDLE",
		),
	}},
	{"a lower one is added while the highest is IDLE", []step{
		config("a"), says("a", idle), config("a", "b"), expect("IDLE queue | a* -"),
	}},
	{"all priorities are removed, and come back", []step{
		config("a", "b"), says("a", ready),
		config(), expect("TRANSIENT_FAILURE no locality in any priority: the assignment is empty |"),
		config("a", "b"), expect("CONNECTING queue | a* -"), built("a", 2),
		says("a", failure), says("b", ready), expect("READY b | a b*"),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→-1 update: the config has no priorities",
			"-1→0 update: priority 0 is the first to be used",
			"0→1 failure: priority 0: TRANSIENT_FAILURE: a: the actor failed",
		),
	}},
	{"the first config has no priorities", []step{
		config(), expect("TRANSIENT_FAILURE no locality in any priority: the assignment is empty |"), reports(1),
		config(), reports(1),
	}},
	{"the highest has no endpoints: it fails while it takes its part", []step{
		configOf("a fails at once", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{{Name: "a", Child: s.saying("a", failure)}, {Name: "b", Child: s.actors.Child("b")}}
		}),
		expect("CONNECTING queue | a b*"), says("b", ready), expect("READY b | a b*"), reports(2),
	}},
	{"all fail while they take their part", []step{
		configOf("all fail at once", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{
				{Name: "a", Child: s.saying("a", failure)},
				{Name: "b", Child: s.saying("b", failure)},
				{Name: "c", Child: s.saying("c", failure)},
			}
		}),
		expect("TRANSIENT_FAILURE c: the actor failed | a b c*"), reports(1),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 failure: priority 0: TRANSIENT_FAILURE: a: the actor failed",
			"1→2 failure: priority 1: TRANSIENT_FAILURE: b: the actor failed",
		),
	}},
	{"the child that serves fails in an update that has a higher one READY: never a failed picker between", []step{
		config("a", "b"), says("a", failure), says("b", ready), reports(3),
		configOf("both change at once", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{{Name: "a", Child: s.saying("a", ready)}, {Name: "b", Child: s.saying("b", failure)}}
		}),
		expect("READY a | a* (b)"), reports(2),
	}},
	{"the first and only one is removed and another takes its place", []step{
		config("a"), says("a", failure), expect("TRANSIENT_FAILURE a: the actor failed | a*"),
		config("b"), expect("CONNECTING queue | b*"), says("b", ready), expect("READY b | b*"), built("a", 1),
	}},
	{"swapped while the highest is READY: the one moved up gets its time", []step{
		config("a", "b"), says("a", ready), expect("READY a | a* -"),
		config("b", "a"), expect("CONNECTING queue | b* (a)"),
		says("b", ready), expect("READY b | b* (a)"), built("a", 1),
		switches("-1→0 update: priority 0 is the first to be used"),
	}},
	{"swapped, and the one moved up fails: the other comes back as it was", []step{
		config("a", "b"), says("a", ready), config("b", "a"),
		says("b", failure), expect("READY a | b a*"), built("a", 1),
	}},
	{"a READY lower one moves up", []step{
		config("a", "b"), says("a", failure), says("b", ready), expect("READY b | a b*"),
		config("b", "a"), expect("READY b | b* (a)"), built("b", 1),
		switches(
			"-1→0 update: priority 0 is the first to be used",
			"0→1 failure: priority 0: TRANSIENT_FAILURE: a: the actor failed",
			"1→0 update: the config changed",
		),
	}},
	{"the READY lowest is removed: the failed one above is in use again, until it is READY", []step{
		config("a", "b"), says("a", failure), says("b", ready),
		config("a"), expect("TRANSIENT_FAILURE a: the actor failed | a*"),
		says("a", ready), expect("READY a | a*"),
	}},
	{"a removed child is closed at once, and built again when it returns", []step{
		config("a", "b"), says("a", ready),
		config("b"), expect("CONNECTING queue | b*"),
		config("a"), expect("CONNECTING queue | a*"), built("a", 2), built("b", 1),
	}},
	{"a deactivated child that is removed is closed at once", []step{
		config("a", "b"), says("a", failure), says("b", ready), says("a", ready), expect("READY a | a* (b)"),
		config("a"), config("a", "b"), expect("READY a | a* -"),
	}},
	{"a child's policy changes: the old one is closed, the new one gets its time", []step{
		config("a"), says("a", ready),
		configOf("a is another policy", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{{Name: "a", Child: s.other.Child("a")}}
		}),
		expect("CONNECTING queue | a*"), built("a", 2),
		says("a", ready), expect("READY a | a*"),
		config("a"), expect("CONNECTING queue | a*"), built("a", 3),
	}},
	{"a deactivated child's policy changes: it is closed at once", []step{
		config("a", "b"), says("a", failure), says("b", ready), says("a", ready), expect("READY a | a* (b)"),
		configOf("b is another policy", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{{Name: "a", Child: s.actors.Child("a")}, {Name: "b", Child: s.other.Child("b")}}
		}),
		expect("READY a | a* -"), built("b", 1), reports(4),
	}},
	{"an update reaches the failed one above, and it is READY of it", []step{
		config("a", "b"), says("a", failure), says("b", ready), expect("READY b | a b*"),
		config("a", "b"), says("a", ready), expect("READY a | a* (b)"), built("a", 1),
	}},
	{"a deactivated child is kept for 15 minutes", []step{
		config("a", "b"), says("a", failure), says("b", ready), says("a", ready), expect("READY a | a* (b)"),
		after(15*time.Minute - 1), expect("READY a | a* (b)"),
		after(1), expect("READY a | a* -"),
		says("a", failure), expect("CONNECTING queue | a b*"), built("b", 2),
	}},
	{"a deactivated child returns before: with its present state, and its retention time restarts", []step{
		config("a", "b"), says("a", failure), says("b", ready), says("a", ready),
		after(14 * time.Minute), says("b", connecting), says("b", ready), expect("READY a | a* (b)"),
		says("a", failure), expect("READY b | a b*"), built("b", 1),
		says("a", ready), after(14 * time.Minute), expect("READY a | a* (b)"),
		after(time.Minute), expect("READY a | a* -"),
	}},
	{"a deactivated child that failed meanwhile is passed over", []step{
		config("a", "b", "c"), says("a", failure), says("b", ready), says("a", ready), says("b", failure),
		says("a", failure), expect("CONNECTING queue | a b c*"),
	}},
	{"a deactivated child that is connecting gets its time", []step{
		config("a", "b", "c"), says("a", failure), says("b", failure), says("a", ready), says("b", connecting),
		says("a", failure), expect("CONNECTING queue | a b* (c)"),
		after(10 * time.Second), expect("CONNECTING queue | a b c*"),
	}},
	{"updates of a deactivated child are ignored", []step{
		config("a", "b"), says("a", failure), says("b", ready), says("a", ready), reports(4),
		says("b", failure), says("b", ready), reports(1), expect("READY a | a* (b)"),
	}},
	{"a failed one above that goes on trying makes no new picker", []step{
		config("a", "b"), says("a", failure), says("b", ready), reports(3),
		says("a", failure), says("a", failure), says("a", failure), reports(1),
	}},
	{"a config that changes nothing makes no new picker", []step{
		config("a", "b"), says("a", ready), reports(2),
		config("a", "b"), reports(1),
		config("a", "b", "c"), reports(2), // what is passed over, and what is not, has changed
	}},
	{"a refused part is that child's failure, until it takes another", []step{
		config("a", "b"), says("a", ready), expect("READY a | a* -"),
		configOf("a refuses", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{{Name: "a", Child: s.actors.Refusing("a", errRefused)}, {Name: "b", Child: s.actors.Child("b")}}
		}),
		expect("CONNECTING queue | a b*"), says("b", ready), expect("READY b | a b*"),
		says("a", ready), expect("READY b | a b*"),
		config("a", "b"), expect("READY a | a* (b)"), built("a", 1),
	}},
	{"a child that refuses as it comes back is passed over, though it is READY", []step{
		config("a", "b", "c"), says("a", failure), says("b", ready), says("a", ready), expect("READY a | a* (b) -"),
		configOf("b will refuse", func(s *stage) []policy.PriorityChild {
			return []policy.PriorityChild{
				{Name: "a", Child: s.actors.Child("a")}, {Name: "b", Child: s.actors.Refusing("b", errRefused)}, {Name: "c", Child: s.actors.Child("c")},
			}
		}),
		says("a", failure), expect("CONNECTING queue | a b c*"),
	}},
	{"an unknown policy fails its child only, also when more configs come", []step{
		configOf("a is unknown", unknown), expect("CONNECTING queue | a b*"),
		configOf("a is unknown", unknown), says("b", ready), expect("READY b | a b*"),
		config("a", "b"), expect("CONNECTING queue | a* (b)"), says("a", ready), expect("READY a | a* (b)"),
	}},
	{"closed: no timer, no word", []step{
		config("a", "b"), says("a", ready), says("a", connecting), reports(3),
		{"close", func(s *stage) {
			s.tree.Close()
			time.Sleep(time.Hour)
			synctest.Wait()
		}},
		reports(1), built("b", 0),
	}},
}

func unknown(s *stage) []policy.PriorityChild {
	return []policy.PriorityChild{
		{Name: "a", Child: policy.Child{Policy: "unheard_of"}}, {Name: "b", Child: s.actors.Child("b")},
	}
}
