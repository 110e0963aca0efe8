package resource

import "testing"

func TestCanonicalAddress(t *testing.T) {
	for written, want := range map[string]string{
		"10.0.0.7:80":                 "10.0.0.7:80",
		"[::1]:80":                    "[::1]:80",
		"[0:0:0:0:0:0:0:1]:80":        "[::1]:80",
		"[2001:DB8::0A]:80":           "[2001:db8::a]:80",
		"[::ffff:10.0.0.7]:80":        "10.0.0.7:80",
		"[::ffff:a00:7]:80":           "10.0.0.7:80",
		"[fe80:0::1%eth0]:80":         "[fe80::1%eth0]:80",
		"LocalHost:80":                "localhost:80",
		"orders.example.com.:80":      "orders.example.com.:80",
		"no address":                  "no address",
		"Hostname":                    "Hostname",
		"[2001:db8::1:0:0:0:0:0:1]:1": "[2001:db8::1:0:0:0:0:0:1]:1",
	} {
		if got := CanonicalAddress(written); got != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
	for _, canonical := range []string{"10.0.0.7:80", "[2001:db8::1]:80", "localhost:80"} {
		if n := testing.AllocsPerRun(10, func() { CanonicalAddress(canonical) }); n > 0 {
			t.Errorf("%s: %v allocations", canonical, n)
		}
	}
}
