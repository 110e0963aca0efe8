package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Worker is a process that answers JSON requests, one at a time, on its standard input and
// output.
type Worker struct {
	*Process

	in  io.WriteCloser
	out *bufio.Reader
}

// answer is what a worker writes for each request.
type answer struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// StartWorker starts a worker.
func StartWorker(name string, args ...string) (*Worker, error) {
	w := &Worker{}
	var err error
	w.Process, err = start(func(cmd *exec.Cmd) error {
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		w.in, w.out = in, bufio.NewReader(out)
		return nil
	}, name, args...)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Do sends a request and reads the result.
func (w *Worker) Do(request, result any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the worker: %w: %s", err, w.output.String())
	}
	line, err = w.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read from the worker: %w: %s", err, w.output.String())
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("the worker answered %.200q: %w", line, err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return json.Unmarshal(a.Result, result)
}

// Stop ends the worker, and waits for its end.
func (w *Worker) Stop() {
	_ = w.in.Close() // it ends by itself
	w.Process.Stop()
}

// Serve is the worker's side: it answers requests until there are no more.
func Serve[Request any](in io.Reader, out io.Writer, do func(Request) (any, error)) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r Request
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		var a answer
		result, err := do(r)
		if err == nil {
			a.Result, err = json.Marshal(result)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}
