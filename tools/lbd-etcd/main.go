// Command lbd-etcd is one member of etcd, on loopback only, for lbd demo --replicas and for tests. It
// begins with an empty store, prints the address for clients when it is ready, and ends when its standard
// input does: so it ends also when the program that has started it is killed.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	// In a terminal, an interrupt is also for the program that has started this one, and may still need it.
	signal.Ignore(os.Interrupt)
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lbd-etcd:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "lbd-etcd-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs, c.UnsafeNoFsync = dir, "panic", []string{os.DevNull}, true
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.ListenPeerUrls = loopback, loopback
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer e.Close()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, in); ended <- err }()
	ready := e.Server.ReadyNotify()
	for {
		select {
		case <-ready:
			if _, err := fmt.Fprintln(out, e.Clients[0].Addr()); err != nil {
				return err
			}
			ready = nil
		case err := <-ended:
			return err
		case err := <-e.Err():
			return fmt.Errorf("the member ended: %w", err)
		}
	}
}
