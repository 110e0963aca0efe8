package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A reader of the log that has stopped blocks no one, and gets the first lines when it goes on.
func TestLogDoesNotBlock(t *testing.T) {
	r, w := io.Pipe()
	l, err := newQueuedLog(w)
	noError(t, err)
	log := (&Config{LogFormat: "json"}).logger(l)
	const more = logQueue // of which some are written at once with the first
	for i := range logQueue + more {
		log.Info("line", "number", i)
	}
	if lost := testutil.ToFloat64(l.lost()); lost == 0 || lost > more {
		t.Errorf("%v lines are lost", lost)
	}
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		read <- string(all)
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	lines := strings.Split(strings.TrimSpace(<-read), "\n")
	if len(lines) < logQueue || !strings.HasSuffix(lines[0], `"number":0}`) || !strings.HasSuffix(lines[logQueue-1], fmt.Sprintf(`"number":%d}`, logQueue-1)) {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
}
