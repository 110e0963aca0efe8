package lbdclient_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	stop := exampleDaemon()
	code := m.Run()
	stop()
	if code == 0 {
		if leaked := leaks(); leaked != "" {
			fmt.Fprintln(os.Stderr, "goroutines of the client are left:\n"+leaked)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns the goroutines in code of the client, apart from its tests.
func leaks() string {
	end := time.Now().Add(time.Minute)
	for {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		var left []string
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "clients/go.") && !strings.Contains(stack, "TestMain") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
