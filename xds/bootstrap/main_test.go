package bootstrap

import (
	"encoding/json"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse reads a bootstrap that is good.
func parse(t *testing.T, body string) *Config {
	t.Helper()
	c, err := Parse([]byte(body), Options{Version: "v1.2.3"})
	noError(t, err)
	return c
}

// server makes a bootstrap of one server, and returns that.
func server(t *testing.T, uri, rest string) Server {
	t.Helper()
	return parse(t, `{"node": {"id": "one"}, "xds_servers": [{"server_uri": `+quote(uri)+`, `+rest+`}]}`).Servers[0]
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// placeless are problems as people read them, without lines and columns.
func placeless(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		p.Line, p.Column = 0, 0
		all = append(all, p.String())
	}
	return all
}
