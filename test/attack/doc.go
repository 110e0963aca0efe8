// Package attack runs the real daemon under attack: floods by one client in a container's
// memory limit, many connections, web pages, and callers without permission. Each test
// measures the picks of another client at the same time, beside those of a daemon that
// is not attacked.
//
// It needs Linux; the floods of memory also need root and a memory cgroup.
package attack
