package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// patience is how long n requests may take.
func (c *client) patience(n int) time.Duration {
	each := 10 * time.Millisecond
	if c.name == "shell" { // starts processes for each request
		each = time.Second
	}
	return stand.Patience + time.Duration(n)*each
}

// sends plays a step that sends requests, again until its outcome is the one wanted if the
// step has time for that.
func (p *play) sends(do string, c *call, s step) error {
	end := time.Now().Add(time.Duration(s.Within * float64(time.Second)))
	for {
		o, err := p.outcome(do, c, s.During)
		if err != nil {
			return err
		}
		if o.ended {
			return nil
		}
		problem := s.Want.problem(o, p.target, p.addresses())
		if problem == "" {
			return nil
		}
		if s.Within == 0 {
			return fmt.Errorf("%s: %s: %s", do, problem, o)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s, after %v s: %s: %s", do, s.Within, problem, o)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *play) addresses() (all []string) {
	for _, u := range p.upstreams {
		all = append(all, u.Address)
	}
	return all
}

func (p *play) tries() (all []int) {
	for _, u := range p.upstreams {
		all = append(all, int(u.Tries.Load()))
	}
	return all
}

func (p *play) calls() int {
	if p.proxy == nil {
		return 0
	}
	return int(p.proxy.Calls.Load())
}

// outcome sends requests, and plays other steps meanwhile.
func (p *play) outcome(do string, c *call, during []step) (outcome, error) {
	command := stand.Command{
		Do: do, Method: cmp.Or(c.Method, "GET"), Path: cmp.Or(c.Path, "/"), Body: c.Body, Idempotent: c.Idempotent,
		Timeout: cmp.Or(c.Timeout, 10), N: c.N, Threads: c.Threads, Headers: c.Headers, Key: c.Key, Keys: c.Keys,
	}
	if fewer := c.Fewer[p.name]; fewer > 0 {
		command.N = fewer
	}
	if do == "load" {
		command.Threads = max(1, c.Threads)
	}
	before, calls := p.tries(), p.calls()
	p.meter.Max.Store(p.meter.InFlight.Load())
	begin := time.Now()
	if p.runner == nil {
		return outcome{}, errors.New("the client is not open")
	}
	if err := p.runner.Send(command); err != nil {
		return outcome{}, err
	}
	o := outcome{n: max(1, command.N)}
	if during != nil {
		if ended, err := p.meanwhile(before, during); err != nil || ended {
			o.ended = ended
			return o, err
		}
	}
	a, err := p.runner.Receive(p.patience(o.n))
	if err != nil {
		return o, err
	}
	if a.Unsupported != "" {
		return o, unsupportedError{a.Unsupported}
	}
	o.calls = p.calls() - calls
	o.answer, o.seconds, o.most = a, time.Since(begin).Seconds(), int(p.meter.Max.Load())
	for i, n := range p.tries() {
		o.tries = append(o.tries, n-before[i])
	}
	return o, nil
}

// meanwhile plays steps when upstreams have seen a request, and reports whether they ended
// the runner.
func (p *play) meanwhile(before []int, during []step) (ended bool, err error) {
	err = until(stand.Patience, func() error {
		for i, n := range p.tries() {
			if n > before[i] {
				return nil
			}
		}
		return errors.New("no request has arrived at an upstream")
	})
	if err != nil {
		return false, err
	}
	if err := p.steps(during, "during"); err != nil {
		return false, err
	}
	return p.runner == nil, nil
}
