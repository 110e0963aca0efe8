package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/xds/resource"
)

// loopWriter is the ResponseWriter of an event loop.
type loopWriter struct {
	*httptest.ResponseRecorder
	handedOver int
	stream     eventloop.Stream
}

func (w *loopWriter) HandOver() { w.handedOver++ }

func (w *loopWriter) WriteResponse(status int, body []byte) {
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (w *loopWriter) WriteStream(s eventloop.Stream) {
	w.WriteHeader(http.StatusOK)
	w.stream = s
}

// A request that would wait on an event loop is handed over, and counted only once.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, func(o *service.Options) {
			o.Connectors[resource.ConnectDefault] = never{}
			o.Sources.ConnectMode = resource.ConnectTCP
			o.Connectors[resource.ConnectTCP] = never{}
		})
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
		d.must(http.StatusCreated, "PUT", "/v1/clusters/ready/config", `{"type":"EDS","metadata":{"filter_metadata":{"lbd":{"connect":"none"}}}}`)
		d.must(http.StatusCreated, "PUT", "/v1/clusters/ready/endpoints", assignment("", "10.0.0.8:8080"))
		for _, tt := range []struct {
			method, target, header string
			handedOver             bool
			status                 int // of the loop, or else of net/http
		}{
			{"GET", "/pick?cluster=ready", "", false, 200},
			{"GET", "/v1/pick?cluster=ready&n=100", "", false, 200},
			{"GET", "/pick?cluster=ready&n=101", "", true, 200},
			{"GET", "/pick?cluster=ready&explain", "", true, 200},
			{"POST", "/pick?cluster=ready", "", false, 201},
			{"POST", "/pick?cluster=ready&n=2", "", true, 201},
			{"POST", "/pick?cluster=ready", "Idempotency-Key: a", true, 201},
			{"POST", "/v1/pick?cluster=ready", "Origin: http://elsewhere", false, 403},
			{"GET", "/pick?cluster=ready&m=1", "", false, 400},
			{"GET", "/pick?cluster=ready&min_index=3", "", false, 200},
			{"GET", "/pick?cluster=ready&min_index=3&wait=5s", "", false, 200},
			{"GET", "/pick?cluster=ready&min_index=4", "", false, 504},
			{"GET", "/pick?cluster=ready&min_index=4&wait=5s", "", true, 504},
			{"POST", "/pick?cluster=ready&min_index=4&wait=5s", "", true, 504},
			{"GET", "/v1/clusters/watch?min_index=4", "", false, 504},
			{"GET", "/v1/clusters/ready/watch?min_index=4&wait=5s", "", true, 504},
			{"GET", "/pick?cluster=orders", "", true, 504},
			{"GET", "/pick?cluster=orders&wait=0", "", false, 504},
			{"POST", "/pick?cluster=orders", "", true, 504},
			{"GET", "/pick?cluster=absent", "", true, 404},
			{"GET", "/pick?target=absent", "", false, 404},
			{"GET", "/pick?target=absent&path=/" + strings.Repeat("a", 255), "", false, 404},
			{"GET", "/pick?target=absent&path=/" + strings.Repeat("a", 256), "", true, 404},
			{"GET", "/pick?target=absent&n=10&header.a=" + strings.Repeat("a", 30), "", true, 404},
		} {
			r := func() *http.Request {
				r := httptest.NewRequest(tt.method, tt.target, http.NoBody)
				if name, value, ok := strings.Cut(tt.header, ": "); ok {
					r.Header.Set(name, value)
				}
				return r
			}
			w := &loopWriter{ResponseRecorder: httptest.NewRecorder()}
			d.handler.ServeHTTP(w, r())
			if tt.handedOver {
				if w.handedOver != 1 || w.Body.Len() > 0 {
					t.Errorf("%s %s: handed over %d times, %d %s", tt.method, tt.target, w.handedOver, w.Code, w.Body)
				}
				w.ResponseRecorder = httptest.NewRecorder()
				d.handler.ServeHTTP(w.ResponseRecorder, r())
			} else if w.handedOver != 0 {
				t.Errorf("%s %s: handed over", tt.method, tt.target)
			}
			if w.Code != tt.status {
				t.Errorf("%s %s: %d %s, want %d", tt.method, tt.target, w.Code, w.Body, tt.status)
			}
		}
		metrics := d.must(http.StatusOK, "GET", "/metrics", "").Body.String()
		for _, want := range []string{
			`lbd_http_requests_total{code="504",method="GET",route="/pick"} 4`,
			`lbd_http_requests_total{code="504",method="POST",route="/pick"} 2`,
			`lbd_http_requests_total{code="201",method="POST",route="/pick"} 3`,
			`lbd_picks_total{cluster="orders",result="pick_timeout",target=""} 3`,
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("no %s in the metrics", want)
			}
		}
	})
}
