package api

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/service/fault"
)

// ProblemType describes an error code. The type of a Problem is its URL.
type ProblemType struct {
	// Type is the path of this description, which is the type of a Problem.
	Type  string     `json:"type" example:"/problems/no_ready_endpoint"`
	Code  fault.Code `json:"code" swaggertype:"string" example:"no_ready_endpoint"`
	Title string     `json:"title"`
	// Status is the HTTP status of the error.
	Status int `json:"status"`
	// GRPCCode is the gRPC status code of the same meaning.
	GRPCCode string `json:"grpc_code" example:"UNAVAILABLE"`
	// Means explains what happened.
	Means string `json:"means"`
	// Fix explains what to do.
	Fix string `json:"fix"`
}

var problemTemplate = template.Must(template.ParseFS(ownPages, "pages/problem.html"))

// @Summary     Describe an error code
// @Description The page that the type of a Problem refers to: what happened, and what to do. HTML for browsers, else JSON.
// @Produce     json,html
// @Success     200 {object} ProblemType "its description"
// @Router      /problems/{code} [get]
func getProblemType(w *recorder, r *http.Request) error {
	code := fault.Code(chi.URLParam(r, "code"))
	a, known := answers[code]
	if !known {
		return fault.Errorf(notFound, "%s: unknown error code; see Problem in /openapi.yaml", fault.Clip(string(code)))
	}
	if err := readParameters(r); err != nil {
		return err
	}
	t := ProblemType{
		Type: problemsPath + string(code), Code: code, Title: a.title, Status: a.status, GRPCCode: grpcName(code),
		Means: a.means, Fix: a.fix,
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept")
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if quality(accept, "text/html") <= quality(accept, "application/json") {
		h["Content-Type"] = jsonType
		writeBody(w, http.StatusOK, encode(t))
		return nil
	}
	var b bytes.Buffer
	if err := problemTemplate.Execute(&b, t); err != nil {
		return fmt.Errorf("write the page of %s: %w", code, err)
	}
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	writeBody(w, http.StatusOK, b.Bytes())
	return nil
}
