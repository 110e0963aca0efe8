package ctl

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestOverlayID: IDs are valid, and different for different subjects.
func TestOverlayID(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	for _, test := range []struct {
		endpoint string
		where    *locality
		want     string // a prefix if it ends with a hyphen
	}{
		{"10.0.0.7:8080", nil, "drain-10.0.0.7_8080"},
		{"10.0.0.7_8080", nil, "drain-10.0.0.7-8080-"},
		{"10.0.0.7-8080", nil, "drain-10.0.0.7-8080"},
		{"orders.example", nil, "drain-orders.example"},
		{"[2001:db8::1]:80", nil, "drain--2001_db8__1-_80-"},
		{"2001:db8::1:80", nil, "drain-2001_db8__1_80"},
		{long, nil, "drain-" + long[:41] + "-"},
		{long + ":1", nil, "drain-" + long[:41] + "-"},
		{long[:58], nil, "drain-" + long[:58]},
		{"é", nil, "drain---"},
		{"", &locality{"us", "a", "1"}, "drain-locality-us_a_1"},
		{"", &locality{"us", "", ""}, "drain-locality-us"},
		{"", &locality{"", "", "x"}, "drain-locality-__x"},
		{"", &locality{"us_a", "", ""}, "drain-locality-us-a-"},
	} {
		s := subject{Endpoint: test.endpoint}
		id := s.overlayID(drainKind, test.where)
		if !valid.MatchString(id) || id != test.want && !(strings.HasSuffix(test.want, "-") && strings.HasPrefix(id, test.want)) {
			t.Errorf("%s %v: %s, want %s", test.endpoint, test.where, id, test.want)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s is the ID of %s and of %s", id, other, test.endpoint)
		}
		seen[id] = test.endpoint
	}
}

func TestReadLocality(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"us": "us/*/*", "us/a": "us/a/*", "us/*/1": "us/*/1", "//1": "*/*/1", "*/a/": "*/a/*", "": "", "*": "error", "a/b/c/d": "error", "//": "error",
	} {
		got := ""
		l, err := readLocality(text)
		switch {
		case err != nil:
			got = "error"
		case l != nil:
			got = l.pattern()
		}
		if got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	header := http.Header{"Date": {now.Format(http.TimeFormat)}}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 90 * time.Second: "1m", 25 * time.Hour: "1d", 23 * time.Hour: "23h",
	} {
		if got := age(now.Add(-d), header); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := age(now, nil); got != "" {
		t.Errorf("without a clock: %s", got)
	}
}
