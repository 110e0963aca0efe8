// Command orders sends requests to the cluster orders, through the client of lbd:
//
//	LBD=http://localhost:8080 go run ./examples/orders http://orders.lbd/
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run requests each URL.
func run(urls []string, out io.Writer) error {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		return err
	}
	defer client.Close() // sends the last report
	orders := &http.Client{
		Transport: &lbdclient.Transport{Client: client},
		Timeout:   2 * time.Second,
	}
	for _, url := range urls {
		response, err := orders.Get(url)
		switch {
		case errors.Is(err, lbdclient.ErrDropped), errors.Is(err, lbdclient.ErrCircuitBroken):
			fmt.Fprintln(out, "too much load:", err) // a service answers 503 here
			continue
		case err != nil:
			return err
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", response.Status, body)
	}
	return nil
}
