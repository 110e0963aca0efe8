package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/bench/process"
)

// caller sends requests to lbd, one after the other.
type caller struct {
	Method    string   `json:"method"`
	Path      string   `json:"path"`
	MediaType string   `json:"media_type,omitempty"`
	Bodies    [][]byte `json:"bodies,omitempty"` // in turns
	// Every is the time between two requests, unless the first takes longer; 0 is without a pause.
	Every time.Duration `json:"every,omitempty"`
}

// callersRequest is the first request to the callers, with Callers, and each later one, with Duration.
type callersRequest struct {
	At       peer.Listen   `json:"at"`
	Callers  []caller      `json:"callers,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`
}

// lowest is the lowest priority of a process.
const lowest = "19"

// callers are callers in a process of their own. It has the lowest priority, because its requests stand
// for those of other machines: their CPU time must not be missing for picks.
type callers struct{ *process.Worker }

// callers starts callers of a server, which wait for run.
func (b *bench) callers(r *running, of *server, all []caller) (callers, error) {
	w, err := process.StartWorker("nice", "-n", lowest, b.executable, roleFlag+roleCallers)
	if err != nil {
		return callers{}, err
	}
	r.onStop(w.Stop)
	var none []int
	return callers{w}, w.Do(callersRequest{At: of.at, Callers: all}, &none)
}

// run lets the callers send requests for some time, and returns how many of each have been answered.
func (c callers) run(d time.Duration) ([]int, error) {
	var answered []int
	err := c.Do(callersRequest{Duration: d}, &answered)
	return answered, err
}

func playCallers(ctx context.Context) error {
	var all []*calling
	return process.Serve(os.Stdin, os.Stdout, func(r callersRequest) (any, error) {
		if r.Duration == 0 {
			for _, c := range r.Callers {
				all = append(all, newCalling(r.At, c))
			}
			return []int{}, nil
		}
		ctx, cancel := context.WithTimeout(ctx, r.Duration)
		defer cancel()
		answered, errs := make([]int, len(all)), make([]error, len(all))
		var running sync.WaitGroup
		for i, c := range all {
			running.Go(func() { answered[i], errs[i] = c.run(ctx) })
		}
		running.Wait()
		return answered, errors.Join(errs...)
	})
}

// calling is a caller with a connection of its own.
type calling struct {
	caller

	client *http.Client
	sent   int
}

func newCalling(at peer.Listen, c caller) *calling {
	return &calling{caller: c, client: newClient(at)}
}

// newClient returns a client of a server.
func newClient(at peer.Listen) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, at.Network, at.Address)
	}}}
}

// run sends requests until the end of ctx, and returns how many were answered before.
func (c *calling) run(ctx context.Context) (answered int, err error) {
	for due := time.Now(); ; due = due.Add(c.Every) {
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return answered, nil
		}
		err := c.send(ctx)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return answered, err
		}
		answered++
	}
}

func (c *calling) send(ctx context.Context) error {
	var body []byte
	if len(c.Bodies) > 0 {
		body = c.Bodies[c.sent%len(c.Bodies)]
	}
	c.sent++
	request, err := http.NewRequestWithContext(ctx, c.Method, "http://localhost"+c.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if c.MediaType != "" {
		request.Header.Set("Content-Type", c.MediaType)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300)) // of an error
		return fmt.Errorf("%s %s: %s: %s", c.Method, c.Path, response.Status, text)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
