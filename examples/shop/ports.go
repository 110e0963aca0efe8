package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Free ports are looked for below those that systems give to the clients of connections, so that they stay free
// until they are used.
const (
	lowestPort  = 10000
	highestPort = 30000
)

// freePorts returns n ports of loopback that are not in use.
func freePorts(ctx context.Context, n int) ([]int, error) {
	for range 100 {
		first := lowestPort + rand.IntN((highestPort-lowestPort)/n)*n
		var ports []int
		for port := first; port < first+n && portIsFree(ctx, port) == nil; port++ {
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}

// portIsFree returns an error if a port of loopback is in use.
func portIsFree(ctx context.Context, port int) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// copyResources copies the resource files of a directory to a new one, with other ports.
func copyResources(from, to string, ports, replacements []int) error {
	var pairs []string
	for i, port := range ports {
		pairs = append(pairs, "port_value: "+strconv.Itoa(port), "port_value: "+strconv.Itoa(replacements[i]))
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		copied := strings.NewReplacer(pairs...).Replace(string(text))
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(copied), 0o600); err != nil {
			return err
		}
	}
	return nil
}
