package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a new pseudoterminal: what the test types and reads, and the
// terminal of a process.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	noError(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	noError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	noError(t, err)
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	noError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	return keyboard, terminal
}

// dialogue is a command that runs in a terminal.
type dialogue struct {
	cmd      *exec.Cmd
	keyboard *os.File
	screen   *syncBuffer
}

// talk runs lbd ctl in a terminal until it asks a question.
func (c *operator) talk(t *testing.T, question string, args ...string) *dialogue {
	t.Helper()
	keyboard, terminal := openTerminal(t)
	d := &dialogue{c.command(t.Context(), args...), keyboard, new(syncBuffer)}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = terminal, terminal, terminal
	d.cmd.Env = append(d.cmd.Env, "TERM=xterm", "NO_COLOR=")
	noError(t, d.cmd.Start())
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keyboard.Read(b)
			_, _ = d.screen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	eventually(t, "the question "+question, func() bool { return strings.Contains(d.screen.String(), question) })
	return d
}

// end returns the exit code.
func (d *dialogue) end(t *testing.T, texts ...string) int {
	t.Helper()
	_ = d.cmd.Wait()
	for _, text := range texts {
		eventually(t, fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(d.screen.String(), text) })
	}
	return d.cmd.ProcessState.ExitCode()
}

// TestCtlConfirmation: a change is made after yes only, and only to what was shown.
func TestCtlConfirmation(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	file := t.TempDir() + "/orders.txt"
	writeFile(t, file, []byte("127.0.0.1:9001\n"))
	push := []string{"push", "endpoints", "orders", file}
	const question = "Push the endpoints of orders at "
	index := func() uint64 { return get[struct{ Served uint64 }](t, p.url+"/v1/store").Served }
	for answer, want := range map[string]int{"n\n": 1, "\n": 1, "yea\n": 1, "\x04": 1} { // the last one ends the input
		d := c.talk(t, question, push...)
		if !strings.Contains(d.screen.String(), "added with 1 usable endpoint") {
			t.Errorf("no preview: %s", d.screen.String())
		}
		_, err := d.keyboard.WriteString(answer)
		noError(t, err)
		if code := d.end(t, "not confirmed: nothing was changed"); code != want || index() != 0 {
			t.Errorf("the answer %q: exit code %d, index %d", answer, code, index())
		}
	}
	d := c.talk(t, question, push...)
	noError(t, d.cmd.Process.Signal(syscall.SIGINT))
	if code := d.end(t, "nothing was changed"); code != 1 || index() != 0 {
		t.Errorf("interrupted: exit code %d, index %d", code, index())
	}
	d = c.talk(t, question, push...)
	_, err := d.keyboard.WriteString("Yes\n")
	noError(t, err)
	if code := d.end(t, "done, at index 1"); code != 0 || index() != 1 {
		t.Errorf("yes: exit code %d, index %d", code, index())
	}
	for _, args := range [][]string{ // each is changed while the question is open
		append([]string{"push", "endpoints", "orders"}, writeList(t, "127.0.0.1:9002")),
		{"delete", "endpoints", "orders"},
		{"restore", "0", "--all"},
		{"restore", "0", "--cluster=orders"},
		{"restore", "0", "--resource=ClusterLoadAssignment/orders"},
		append([]string{"push", "endpoints", "new"}, file),
	} {
		d := c.talk(t, "[y/N]", args...)
		for _, cluster := range []string{"orders", "new"} {
			do(t, "PUT", p.url+"/v1/clusters/"+cluster+"/endpoints", fmt.Sprintf("127.0.0.1:%d\n", 10_000+index()))
		}
		before := index()
		_, err := d.keyboard.WriteString("y\n")
		noError(t, err)
		if code := d.end(t, "precondition_failed", "changed it since the preview"); code != 4 || index() != before {
			t.Errorf("lbd ctl %q: exit code %d, index %d, want %d", args, code, index(), before)
		}
		do(t, "DELETE", p.url+"/v1/clusters/new/endpoints", "")
	}
}

func writeList(t *testing.T, lines ...string) string {
	t.Helper()
	file := t.TempDir() + "/list.txt"
	writeFile(t, file, []byte(strings.Join(lines, "\n")))
	return file
}

// TestCtlColors: on a terminal only, and not with NO_COLOR.
func TestCtlColors(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n")
	if code := c.talk(t, "orders", "get").end(t, "\x1b[32mREADY\x1b[0m"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.env = append(c.env, "TERM=dumb")
	cmd := c.command(t.Context(), "get")
	keyboard, terminal := openTerminal(t)
	cmd.Stdout = terminal
	noError(t, cmd.Run())
	b := make([]byte, 4096)
	n, err := keyboard.Read(b)
	if text := string(b[:n]); err != nil || strings.Contains(text, "\x1b") {
		t.Errorf("on a dumb terminal: %v: %q", err, text)
	}
}

// TestCtlTop: clusters are shown until q or Ctrl-C is pressed, or a signal arrives, and the terminal is
// then as before.
func TestCtlTop(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n")
	do(t, "PUT", p.url+"/v1/clusters/worse/endpoints?allow_empty=true", `{"endpoints": []}`)
	do(t, "GET", p.url+"/pick?cluster=worse&wait=0s", "")
	for _, end := range []func(*dialogue) error{
		func(d *dialogue) error { _, err := d.keyboard.WriteString("xq"); return err },
		func(d *dialogue) error { _, err := d.keyboard.WriteString("\x03"); return err },
		func(d *dialogue) error { return d.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		d := c.talk(t, "\x1b[32mREADY\x1b[0m", "top")
		eventually(t, "the worst cluster first", func() bool {
			return slices.ContainsFunc(strings.Split(d.screen.String(), "\x1b[H"), func(frame string) bool {
				worse, orders := strings.Index(frame, "worse"), strings.Index(frame, "orders")
				return worse >= 0 && worse < orders
			})
		})
		eventually(t, "a reason", func() bool { return strings.Contains(d.screen.String(), "the assignment is empty") })
		noError(t, end(d))
		if code := d.end(t, "\x1b[?1049l"); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	d := c.talk(t, "cannot reach", "top", "--url=http://127.0.0.1:1")
	if code := d.end(t, "\x1b[?1049l"); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// TestCtlInterrupted: a signal ends a request.
func TestCtlInterrupted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	cmd := newOperator(t).command(t.Context(), "get", "--url=http://"+l.Addr().String())
	out := new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	noError(t, cmd.Start())
	c, err := l.Accept()
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Read(make([]byte, 1)) // the request
	noError(t, err)
	noError(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || out.String() != "lbd: interrupted\n" {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// TestCtlOverlayConfirmation: overlays are put and deleted after yes only.
func TestCtlOverlayConfirmation(t *testing.T) {
	t.Parallel()
	p, c := startCtl(t)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", "127.0.0.1:9001\n127.0.0.1:9002\n")
	ids := func() string { return c.expect(t, 0, "overlays orders -o name").stdout }
	const id = "drain-127.0.0.1_9001\n"
	for _, step := range []struct {
		args, question, answer string
		code                   int
		left                   string
	}{
		{"drain orders 127.0.0.1:9001", "Drain endpoint 127.0.0.1:9001 of orders at ", "n\n", 1, ""},
		{"drain orders 127.0.0.1:9001", "Drain endpoint 127.0.0.1:9001 of orders at ", "y\n", 0, id},
		{"undrain orders 127.0.0.1:9001", "Delete this overlay, so that endpoint 127.0.0.1:9001 of orders gets picks again", "n\n", 1, id},
		{"overlays delete orders drain-127.0.0.1_9001", "Delete the overlay drain-127.0.0.1_9001 of orders at ", "n\n", 1, id},
		{"undrain orders 127.0.0.1:9001", "Delete this overlay", "y\n", 0, ""},
		{"weight orders 127.0.0.1:9001 0", "Multiply the weight of endpoint 127.0.0.1:9001 of orders by 0 at ", "n\n", 1, ""},
	} {
		d := c.talk(t, step.question, strings.Fields(step.args)...)
		_, err := d.keyboard.WriteString(step.answer)
		noError(t, err)
		if code := d.end(t); code != step.code || ids() != step.left {
			t.Errorf("lbd ctl %s, %q: exit code %d, and there are %q", step.args, step.answer, code, ids())
		}
	}
}
