package load

import (
	"strings"
	"testing"
)

func TestResponse(t *testing.T) {
	const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct {
		name, response string
		status         int
		body           string
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"},
		{"lower case", "HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, ""},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"chunks", chunkedHead + "2\r\nok\r\n0\r\n\r\n", 200, "2\r\nok\r\n0\r\n\r\n"},
		{"two chunks", chunkedHead + "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", 200, "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for n := range len(test.response) {
				if _, length, _, err := response([]byte(test.response[:n])); length != 0 || err != nil {
					t.Fatalf("the first %d bytes: length %d, error %v", n, length, err)
				}
			}
			status, length, body, err := response([]byte(test.response + "more"))
			if err != nil || status != test.status || length != len(test.response) || string(body) != test.body {
				t.Errorf("status %d, length %d, body %q, error %v", status, length, body, err)
			}
		})
	}
}

func TestInvalidResponse(t *testing.T) {
	for _, text := range []string{
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1\r\n\r\n",
		"HTTP/1.1 abc OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
	} {
		if _, _, _, err := response([]byte(text)); err == nil {
			t.Errorf("%q is valid", text)
		}
	}
}

func TestLeaseID(t *testing.T) {
	id, err := leaseID([]byte(`{"address":"a:1","lease":{"id":"4VZ","expires_at":""}}`))
	if err != nil || string(id) != "4VZ" {
		t.Errorf("%q, error %v", id, err)
	}
	for _, body := range []string{`{"address":"a:1"}`, `{"id":"4V`} {
		if _, err := leaseID([]byte(body)); err == nil {
			t.Errorf("%s has a lease", body)
		}
	}
}

func FuzzResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, length, body, err := response([]byte(text))
		if err == nil && (length > len(text) || !strings.HasSuffix(text[:length], string(body))) {
			t.Errorf("length %d, body %q", length, body)
		}
	})
}
