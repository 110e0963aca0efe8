package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// certificate is that of the listeners of callers. As in lbd, it is read again when its files have changed and two checks
// have found the same, which takes 2 s at most. While they are invalid, or it has expired or is not yet valid, the last
// valid version stays in use.
type certificate struct {
	chain, key string // files
	log        *slog.Logger
	current    atomic.Pointer[tls.Certificate]
	next       *tls.Certificate // what the last check found if it is not current: it may be incomplete
	failed     string           // what was logged last
}

func (c *certificate) read() (*tls.Certificate, error) {
	chain, err1 := os.ReadFile(c.chain)
	key, err2 := os.ReadFile(c.key)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", c.chain, c.key, err)
	}
	return &pair, nil
}

// open reads the files. An expired certificate is no error then.
func (c *certificate) open() error {
	pair, err := c.read()
	c.current.Store(pair)
	return err
}

// follow checks the files until ctx is done.
func (c *certificate) follow(ctx context.Context) {
	for tick := time.Tick(time.Second); ctx.Err() == nil; {
		c.check()
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

func (c *certificate) check() {
	pair, err := c.read()
	if err == nil {
		switch now := time.Now(); {
		case now.After(pair.Leaf.NotAfter):
			err = fmt.Errorf("%s: the certificate expired at %s", c.chain, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		case now.Before(pair.Leaf.NotBefore):
			err = fmt.Errorf("%s: the certificate is not valid before %s", c.chain, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
		}
	}
	const files = "certificates of the listeners"
	switch {
	case err != nil:
		if err.Error() != c.failed {
			c.log.Error("files are invalid: their last valid version stays in use", "files", files, "error", err)
		}
		c.next, c.failed = nil, err.Error()
	case same(pair, c.current.Load()):
		c.next, c.failed = nil, ""
	case c.next == nil || !same(pair, c.next):
		c.next = pair
	default:
		c.current.Store(pair)
		c.next, c.failed = nil, ""
		c.log.Info("reloaded files", "files", files)
	}
}

func same(a, b *tls.Certificate) bool {
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}
