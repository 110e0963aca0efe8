package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// play is one scenario with one client in one mode.
type play struct {
	*client
	scenario

	mode      string
	target    string // the cluster
	open      stand.Command
	meter     stand.Meter
	upstreams []*stand.Upstream
	proxy     *stand.Proxy
	leases    []string
}

// run plays a scenario. The error is unsupportedError if the client does not support it.
func (c *client) run(s scenario, mode string) error {
	c.plays++
	p := &play{client: c, scenario: s, mode: mode, target: fmt.Sprintf("%s%s-%d", s.Name, nameOf(s.Cluster), c.plays)}
	defer p.end()
	err := p.all()
	if err != nil {
		c.discard()
	}
	return err
}

func nameOf(c *cluster) string {
	if c == nil {
		return ""
	}
	return c.Name
}

func (p *play) all() error {
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.steps(p.Before, "before"); err != nil {
		return err
	}
	if err := p.opens(p.Options); err != nil {
		return err
	}
	if err := p.steps(p.Steps, "step"); err != nil {
		return err
	}
	begin := time.Now()
	if err := p.close(p.mode); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if took := time.Since(begin); took > p.closeTime() {
		return fmt.Errorf("close took %s", took)
	}
	if err := p.steps(p.After, "after"); err != nil {
		return err
	}
	return p.leasesEnded()
}

// closeTime is the second that a client has, and what a busy machine may add.
func (p *play) closeTime() time.Duration {
	if p.Timed {
		return 1900 * time.Millisecond // calls of a client that does not end them take 2 s
	}
	return 8 * time.Second
}

// prepare starts the upstreams and what is between the client and lbd, and pushes the cluster.
func (p *play) prepare() error {
	for _, behaves := range p.Upstreams {
		u, err := stand.NewUpstream(&p.meter, behaves)
		if err != nil {
			return err
		}
		p.upstreams = append(p.upstreams, u)
	}
	if len(p.upstreams) > 0 {
		wanted := p.Cluster
		if wanted == nil {
			wanted = &cluster{}
		}
		if err := p.push(wanted); err != nil {
			return err
		}
	}
	p.open = stand.Command{Do: "open", LBD: "unix:" + p.daemon.Socket, Cluster: p.target, Mode: p.mode, Adapter: p.adapter, Token: p.Token}
	var err error
	switch p.Via {
	case "":
	case "token":
		p.open.LBD = "unix:" + p.daemon.TokenSocket
	case "tls":
		p.open.LBD, err = p.daemon.TLS()
	case "proxy":
		if p.proxy, err = stand.NewProxy(filepath.Join(p.dir, fmt.Sprintf("proxy%d.sock", p.plays)), p.daemon.Socket, nil); err == nil {
			p.open.LBD = p.proxy.Address
		}
	case "untrusted":
		if p.proxy, err = stand.NewProxy("", p.daemon.Socket, &p.credentials.Other); err == nil {
			p.open.LBD = p.proxy.Address
		}
	default:
		err = fmt.Errorf("via %q is unknown", p.Via)
	}
	if err == nil && p.TokenFile {
		p.open.TokenFile = filepath.Join(p.dir, "token")
		err = p.writeToken()
	}
	return err
}

// opens opens the client. An option $0 is the address of upstream 0, and $ the name of the cluster.
func (p *play) opens(options map[string]any) error {
	command := p.open
	command.Options = make(map[string]any, len(options))
	for name, value := range options {
		if text, ok := value.(string); ok {
			value = filled(text, p.target, p.addresses())
		}
		command.Options[name] = value
	}
	a, err := p.do(command)
	if err == nil && !a.OK {
		err = fmt.Errorf("open: the answer is %+v", a)
	}
	return err
}

// leasesEnded waits until no lease of the cluster is held.
func (p *play) leasesEnded() error {
	if !p.daemon.Running() || p.Expires {
		return nil
	}
	return until(stand.Patience, func() error {
		n, err := p.daemon.Metric("lbd_leases_active{" + stand.Label(p.target) + "}")
		if err == nil && n != 0 {
			err = fmt.Errorf("%v leases are held after the client has closed", n)
		}
		return err
	})
}

// end leaves the daemon as the next play wants it.
func (p *play) end() {
	if p.proxy != nil {
		p.proxy.Close()
	}
	for _, u := range p.upstreams {
		u.Close()
	}
	if !p.daemon.Running() && p.daemon.Start() != nil {
		return // the next play fails
	}
	_ = p.releases()
	_ = p.remove() // it may be removed already
}

// until polls until check succeeds.
func until(within time.Duration, check func() error) error {
	end := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *play) steps(all []step, where string) error {
	for i, s := range all {
		if !s.isFor(p.mode) {
			continue
		}
		if err := p.step(s); err != nil {
			return fmt.Errorf("%s %d: %w", where, i+1, err)
		}
	}
	return nil
}

func (p *play) step(s step) error {
	switch {
	case s.Request != nil:
		return p.sends("request", s.Request, s)
	case s.Load != nil:
		return p.sends("load", s.Load, s)
	case s.Fork != nil:
		return p.sends("fork", s.Fork, s)
	case s.Open != nil:
		p.open.Token = cmp.Or(s.Token, p.open.Token)
		return p.opens(s.Open)
	case s.LBD != "":
		return p.changes(s.LBD)
	case s.Fault != "":
		p.proxy.Fault(s.Fault)
		return nil
	case s.Push != nil:
		return p.push(s.Push)
	case s.Remove:
		return p.remove()
	case s.Behave != nil:
		return p.behave(s.Behave)
	case s.Pause > 0:
		time.Sleep(time.Duration(s.Pause * float64(time.Second)))
		return nil
	case s.Hold > 0:
		ids, err := p.daemon.Lease(p.target, s.Hold)
		p.leases = append(p.leases, ids...)
		return err
	case s.Release:
		return p.releases()
	case s.Rotate:
		return p.rotates()
	case s.End != "":
		return p.ends(s.End)
	case s.Events != nil:
		return p.events(s.Events)
	case s.Counted != nil:
		return p.counted(s.Counted)
	}
	return errors.New("the step does nothing")
}

func (p *play) changes(lbd string) error {
	switch lbd {
	case "start":
		return p.daemon.Start()
	case "stop":
		p.daemon.Stop(syscall.SIGTERM)
	case "kill":
		p.daemon.Stop(syscall.SIGKILL)
	default:
		return fmt.Errorf("lbd %q is unknown", lbd)
	}
	return nil
}

func (p *play) behave(upstreams map[string]string) error {
	for number, behaves := range upstreams {
		i, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		if err := p.upstreams[i].Behave(behaves); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) releases() error {
	for _, id := range p.leases {
		if err := p.daemon.Call("POST", "/v1/leases/"+id+"/done", nil, nil); err != nil {
			return err
		}
	}
	p.leases = nil
	return nil
}

// rotates makes the token in use invalid, and writes a valid one to the file.
func (p *play) rotates() error {
	p.rotations++
	if err := stand.SetTokens(p.dir, rotated(p.rotations)); err != nil {
		return err
	}
	return until(stand.Patience, func() error {
		if err := p.daemon.TokenWorks(rotated(p.rotations)); err != nil {
			return err
		}
		return p.writeToken()
	})
}

func rotated(number int) string { return fmt.Sprintf("lbd_token_number_%d_of_a_test", number) }

func (p *play) writeToken() error {
	return os.WriteFile(p.open.TokenFile, []byte(rotated(p.rotations)+"\n"), 0o600)
}

// ends ends the runner: by a command, the end of its input, or a signal.
func (p *play) ends(how string) error {
	r := p.runner
	defer func() { p.discard() }()
	begin := time.Now()
	switch how {
	case "close":
		if a, err := r.Do(stand.Command{Do: "close"}, p.closeTime()); err != nil || !a.OK {
			return fmt.Errorf("close: %+v, %w", a, err)
		}
	case "input":
		r.CloseInput()
	case "SIGTERM":
		r.Signal(syscall.SIGTERM)
	default:
		return fmt.Errorf("end %q is unknown", how)
	}
	if !r.Ended(p.closeTime()) {
		return fmt.Errorf("the runner did not end within %s of %s\n%s", time.Since(begin), how, r.Stacks())
	}
	if status := r.Status(); status != 0 && how != "SIGTERM" {
		return fmt.Errorf("the runner ended with status %d", status)
	}
	return nil
}

// events waits until the hooks have got what a scenario wants.
func (p *play) events(want *events) error {
	var got, wanted events
	wanted.States = want.States
	for _, text := range want.Attempts {
		wanted.Attempts = append(wanted.Attempts, filled(text, p.target, p.addresses()))
	}
	return until(8*time.Second, func() error {
		a, err := p.do(stand.Command{Do: "events"})
		if err != nil {
			return err
		}
		for _, one := range a.Attempts {
			if one.Cluster != p.target || one.Seconds < 0 || one.Seconds > 8 {
				return fmt.Errorf("attempt %+v", one)
			}
			got.Attempts = append(got.Attempts, fmt.Sprintf("%s %d %s", one.Address, one.Number, one.Outcome))
		}
		got.States = append(got.States, a.States...)
		if wanted.Attempts != nil && !slices.Equal(got.Attempts, wanted.Attempts) || wanted.States != nil && !slices.Equal(got.States, wanted.States) {
			return fmt.Errorf("the hooks got %+v, not %+v", got, wanted)
		}
		return nil
	})
}

// counted waits until lbd has counted requests: by reports in the mode batch, as leases in
// the mode lease. In the mode pick it does not count them. By default, a client reports every 5 s: one that takes
// no notice of its options does so too late.
func (p *play) counted(by map[string]int) error {
	metric := map[string]string{"batch": "lbd_reported_requests_total", "lease": "lbd_leases_finished_total"}[p.mode]
	if metric == "" {
		return nil
	}
	return until(4500*time.Millisecond, func() error {
		for _, outcome := range []string{"success", "error", "cancelled", "expired"} {
			n, err := p.daemon.Metric(fmt.Sprintf("%s{%s,outcome=%q}", metric, stand.Label(p.target), outcome))
			if err != nil {
				return err
			}
			wanted := by[outcome]
			if wanted < 0 {
				wanted = sum(p.tries())
			}
			if int(n) != wanted {
				return fmt.Errorf("%s: lbd counted %v with outcome %s, not %d", metric, n, outcome, wanted)
			}
		}
		return nil
	})
}
