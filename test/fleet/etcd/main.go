// Command etcd is one member of etcd for the tests of the dashboard. It begins with an empty store, prints
// the address for clients when it is ready, and ends when its standard input does.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs, c.UnsafeNoFsync = dir, "panic", []string{"/dev/null"}, true
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.ListenPeerUrls = loopback, loopback
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer e.Close()
	<-e.Server.ReadyNotify()
	if _, err := fmt.Fprintln(out, e.Clients[0].Addr()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, in); ended <- err }()
	select {
	case err := <-ended:
		return err
	case err := <-e.Err():
		return fmt.Errorf("etcd ended: %w", err)
	}
}
