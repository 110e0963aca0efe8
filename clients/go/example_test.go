package lbdclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// exampleDaemon starts the lbd that the examples find by the environment, with the clusters orders and closed.
func exampleDaemon() (stop func()) {
	d, err := lbdtest.New()
	if err != nil {
		panic(err)
	}
	os.Setenv("LBD", d.Address) //nolint:errcheck // the name is valid
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "this is %s of %s", r.URL.Path, r.Host)
	}))
	list := func(cluster, text string) {
		if _, err := d.Do(http.MethodPut, "/v1/clusters/"+cluster+"/endpoints", text); err != nil {
			panic(err)
		}
	}
	host, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	endpoints := fmt.Sprintf(
		`"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%s}}}}]}]`, host, port)
	list("orders", "{"+endpoints+"}")
	list("closed", `{"policy":{"drop_overloads":[{"category":"sale","drop_percentage":{"numerator":100}}]},`+endpoints+"}")
	return func() {
		server.Close()
		d.Close()
	}
}

// Make one client for the process. It finds lbd by the environment variable LBD.
func Example() {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	orders := &http.Client{
		Transport: &lbdclient.Transport{Client: client},
		Timeout:   2 * time.Second,
	}
	response, err := orders.Get("http://orders.lbd/items/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(response.Status, string(body), err)
	// Output: 200 OK this is /items/7 of orders.lbd <nil>
}

// The errors of lbd say what to do.
func ExampleError() {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client}}
	for _, cluster := range []string{"closed", "missing"} {
		_, err := sender.Get("http://" + cluster + ".lbd/") //nolint:bodyclose // there is an error
		var reason *lbdclient.Error
		switch {
		case errors.Is(err, lbdclient.ErrDropped) && errors.As(err, &reason):
			fmt.Println("the operator drops", reason.Category)
		case errors.Is(err, lbdclient.ErrUnknownCluster):
			fmt.Println(err)
		}
	}
	// Output:
	// the operator drops sale
	// Get "http://missing.lbd/": lbd: cluster missing: cluster "missing" not found (unknown_cluster)
}

// A POST is retried with a header Idempotency-Key. The upstream does not get the header if its value is nil.
func ExampleTransport() {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	sender := &http.Client{Transport: &lbdclient.Transport{Client: client}}
	request, err := http.NewRequest(http.MethodPost, "http://orders.lbd/search", strings.NewReader("q=shoes"))
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header["Idempotency-Key"] = nil
	response, err := sender.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	// Output: 200 OK
}

// Pick is for protocols other than HTTP.
func ExampleClient_Pick() {
	client, err := lbdclient.New(lbdclient.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pick, err := client.Pick(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := call(ctx, pick.Address()); err != nil {
		pick.End(lbdclient.Failure)
		return
	}
	pick.End(lbdclient.Success)
	fmt.Println("done")
	// Output: done
}

// call stands for a request with another protocol.
func call(context.Context, string) error { return nil }

// TestExampleProgram runs examples/orders.
func TestExampleProgram(t *testing.T) {
	out, err := exec.Command("go", "run", "./examples/orders").CombinedOutput()
	if err != nil || string(out) != strings.Repeat("200 OK: this is / of orders.lbd\n", 5) {
		t.Errorf("%v: %s", err, out)
	}
}
