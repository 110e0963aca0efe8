// Package shop is a program of a stranger, which make package tests in an empty module.
package shop

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/lbdgrpc"
)

// startLBD starts lbd, with a list of endpoints for each cluster.
func startLBD(t *testing.T, clusters map[string]string) (address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	daemon := exec.Command(os.Getenv("LBD_BIN"), "--data=", "--connect=none", "--listen=unix:"+socket)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	for cluster, list := range clusters {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := exec.Command(os.Getenv("LBD_BIN"), "ctl", "push", "endpoints", cluster, list, "--yes", "--url=unix://"+socket).Run()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	return "unix:" + socket
}

// list writes a list of endpoints.
func list(t *testing.T, endpoint string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte(endpoint+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestShop(t *testing.T) {
	orders := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	defer orders.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stock := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(stock, health.NewServer())
	go func() { _ = stock.Serve(listener) }()
	defer stock.Stop()
	address := startLBD(t, map[string]string{
		"orders": list(t, orders.Listener.Addr().String()), "stock": list(t, listener.Addr().String()),
	})

	client, err := lbdclient.New(lbdclient.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client}, Timeout: 5 * time.Second}
	response, err := sender.Get("http://orders.lbd/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "orders.lbd" {
		t.Errorf("%q, %v", body, err)
	}

	channel, err := grpc.NewClient("lbd:///stock", lbdgrpc.WithClient(client), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = channel.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := grpc_health_v1.NewHealthClient(channel).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}
