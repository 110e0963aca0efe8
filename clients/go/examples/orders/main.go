// Command orders sends five requests to the cluster orders:
//
//	LBD=http://localhost:8080 go run ./examples/orders
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run() error {
	client, err := lbdclient.New(lbdclient.Config{}) // finds lbd by the environment variable LBD
	if err != nil {
		return err
	}
	defer client.Close() // sends the last report
	orders := &http.Client{
		Transport: &lbdclient.Transport{Client: client},
		Timeout:   2 * time.Second,
	}
	for range 5 {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://orders.lbd/", nil)
		if err != nil {
			return err
		}
		response, err := orders.Do(request)
		switch {
		case errors.Is(err, lbdclient.ErrDropped), errors.Is(err, lbdclient.ErrCircuitBroken):
			fmt.Println("too much load:", err) // a service answers 503 here
			continue
		case err != nil:
			return err
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", response.Status, body)
	}
	return nil
}
