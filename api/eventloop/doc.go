// Package eventloop serves picks, and the ends of leases, on event loops: a few goroutines, which each
// serve many connections with epoll, take less CPU time than a goroutine for each connection.
//
// A loop serves only what it fully understands: requests of HTTP/1.1 to the routes of [Routes], whose
// lines and headers have no unusual form, and which need not wait. It hands any other connection over
// to net/http, with the bytes that it has read, and net/http decides what they mean. A connection that
// was handed over does not return.
//
// The handlers are those of net/http, with the same http.Request, and the response has the same bytes.
// Limits on connections, timeouts and what happens with slow clients are the same, too.
package eventloop
