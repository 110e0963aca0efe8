package stand

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Command is what a runner is told: README.md has its fields.
type Command struct {
	Do         string         `json:"do"`
	LBD        string         `json:"lbd,omitempty"`
	Token      string         `json:"token,omitempty"`
	TokenFile  string         `json:"token_file,omitempty"`
	Cluster    string         `json:"cluster,omitempty"`
	Mode       string         `json:"mode,omitempty"`
	Adapter    string         `json:"adapter,omitempty"`
	Options    map[string]any `json:"options,omitempty"`
	N          int            `json:"n,omitempty"`
	Threads    int            `json:"threads,omitempty"`
	Method     string         `json:"method,omitempty"`
	Path       string         `json:"path,omitempty"`
	URL        string         `json:"url,omitempty"`
	Body       string         `json:"body,omitempty"`
	Idempotent bool           `json:"idempotent,omitempty"`
	Timeout    float64        `json:"timeout,omitempty"`
	Rate       float64        `json:"rate,omitempty"`

	Headers map[string]string `json:"headers,omitempty"`
	Key     string            `json:"key,omitempty"`
	Keys    int               `json:"keys,omitempty"`
}

// Answer is what a runner says.
type Answer struct {
	OK          bool           `json:"ok"`
	Unsupported string         `json:"unsupported"`
	Status      int            `json:"status"`
	Body        string         `json:"body"`
	Error       string         `json:"error"`
	Message     string         `json:"message"`
	Statuses    map[string]int `json:"statuses"`
	Errors      map[string]int `json:"errors"`
	Seconds     float64        `json:"seconds"`
	P99         []float64      `json:"p99"` // with a rate: of each second, in seconds
	Choice      *Choice        `json:"choice"`
	Attempts    []Attempt      `json:"attempts"`
	States      []string       `json:"states"`
}

// Attempt is what a client says of a try, by its hook.
type Attempt struct {
	Cluster string  `json:"cluster"`
	Address string  `json:"address"`
	Number  int     `json:"number"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
}

// Choice is what a client says of the last try of a request.
type Choice struct {
	Cluster  string `json:"cluster"`
	Address  string `json:"address"`
	Zone     string `json:"zone"`
	Priority int    `json:"priority"`
	Attempt  int    `json:"attempt"`
}

// Runner is the process of a runner.
type Runner struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan []byte // closed at the end of the output
	ended   chan struct{}
	stderr  syncBuffer
}

// StartRunner starts the runner of the client in a directory, with more variables in its
// environment.
func StartRunner(client string, environment ...string) (*Runner, error) {
	//nolint:gosec,noctx // the runner is what is tested; Kill ends it
	r := &Runner{cmd: exec.Command(filepath.Join(client, "conformance", "run")), answers: make(chan []byte, 1), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), environment...)
	r.cmd.Stderr = &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r.cmd.WaitDelay = time.Second // children of fork may keep stderr open
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.in = in
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go r.read(out)
	return r, nil
}

func (r *Runner) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		r.answers <- append([]byte(nil), lines.Bytes()...)
	}
	close(r.answers)
	_ = r.cmd.Wait() // Status has what there is to know
	close(r.ended)
}

// Send sends a command.
func (r *Runner) Send(c Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the runner has ended: %w\n%s", err, r.Stderr())
	}
	return nil
}

// Receive waits for the answer to a command.
func (r *Runner) Receive(within time.Duration) (Answer, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case line, ok := <-r.answers:
		if !ok {
			return Answer{}, fmt.Errorf("the runner has ended\n%s", r.Stderr())
		}
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil {
			return a, fmt.Errorf("the answer %q: %w", line, err)
		}
		return a, nil
	case <-timer.C:
		return Answer{}, fmt.Errorf("no answer within %s\n%s", within, r.Stacks())
	}
}

// Do sends a command, and waits for its answer.
func (r *Runner) Do(c Command, within time.Duration) (Answer, error) {
	if err := r.Send(c); err != nil {
		return Answer{}, err
	}
	return r.Receive(within)
}

// CloseInput ends the input of the runner.
func (r *Runner) CloseInput() { _ = r.in.Close() }

// Signal sends a signal to the runner.
func (r *Runner) Signal(s os.Signal) { _ = r.cmd.Process.Signal(s) }

// Ended waits until the process has ended, and reports whether it has.
func (r *Runner) Ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	answers := r.answers
	for {
		select {
		case <-r.ended:
			return true
		case _, ok := <-answers: // nobody waits for it any more
			if !ok {
				answers = nil
			}
		case <-timer.C:
			return false
		}
	}
}

// Status returns the exit status of a process that has ended, -1 after a signal.
func (r *Runner) Status() int { return r.cmd.ProcessState.ExitCode() }

// PID returns the ID of the process.
func (r *Runner) PID() int { return r.cmd.Process.Pid }

// Stderr returns the end of what the runner wrote to its standard error.
func (r *Runner) Stderr() string { return r.lastErrors(4000) }

func (r *Runner) lastErrors(size int) string {
	text := r.stderr.String()
	return text[max(0, len(text)-size):]
}

// Stacks asks a runner that is stuck, by SIGQUIT, what its threads do. It returns the end of the
// standard error: Go, Java and Python have written it there, and the others end.
func (r *Runner) Stacks() string {
	r.Signal(syscall.SIGQUIT)
	r.Ended(500 * time.Millisecond)
	return r.lastErrors(64 << 10)
}

// Kill ends the process, and those that it started.
func (r *Runner) Kill() {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	r.Ended(Patience)
}
