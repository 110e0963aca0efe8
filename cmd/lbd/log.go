package main

import (
	"bytes"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/logfile"
)

// logQueue is the maximum number of lines of the log that wait to be written.
const logQueue = 4096

// queuedLog writes the log of the daemon to a file, and never blocks: its reader may have
// stopped, and picks must go on. Lines for which there is no room are dropped.
type queuedLog struct{ *logfile.File }

func newQueuedLog(w io.Writer) (*queuedLog, error) {
	f, err := logfile.Open(logfile.Options{
		Path: "-", Stdout: w, Name: "log", Queue: logQueue, Logger: slog.New(slog.DiscardHandler),
	})
	return &queuedLog{f}, err
}

// Write queues a line.
func (l *queuedLog) Write(line []byte) (int, error) {
	if !l.Append(bytes.Clone(line), 0) {
		l.Drop()
	}
	return len(line), nil
}

// lost is the metric of the lines that are missing.
func (l *queuedLog) lost() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "lbd_log_lines_lost_total",
		Help: "Lines of the log of lbd that were dropped because standard error was blocked, or could not be written.",
	}, func() float64 { return float64(l.Dropped() + l.Failed()) })
}
