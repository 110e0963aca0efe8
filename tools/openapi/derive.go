package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// derive adds what follows from the path and the parameters of an operation: its tag, its
// path parameters, and the errors that all such operations have.
func derive(path string, op *openapi3.Operation) {
	op.Tags = []string{tagOf(path)}
	if op.Responses.Status(http.StatusNotModified) != nil {
		known := openapi3.NewHeaderParameter("If-None-Match").WithSchema(openapi3.NewStringSchema()).WithDescription("ETags that the caller has")
		op.AddParameter(known)
	}
	if op.Parameters.GetByInAndName("query", "last_event_id") != nil { // a watch that resumes
		op.AddParameter(openapi3.NewHeaderParameter("Last-Event-ID").WithSchema(openapi3.NewStringSchema()).WithDescription("the id of the last received event"))
	}
	if op.Parameters.GetByInAndName("header", "If-Match") != nil { // a change
		dryRun := openapi3.NewQueryParameter("dry_run").WithSchema(openapi3.NewBoolSchema()).WithDescription("return what would change, and the effect on picks, without changing anything")
		shift := openapi3.NewStringSchema()
		shift.Pattern, shift.Example = `^[0-9]+(\.[0-9]+)?%$`, "20%"
		maxShift := openapi3.NewQueryParameter("max_shift").WithSchema(shift).WithDescription("reject the change with code blocked if it would give more of the picks of a cluster another endpoint, as effect of dry_run predicts: a percentage")
		op.Parameters = append(openapi3.Parameters{{Value: dryRun}, {Value: maxShift}}, op.Parameters...)
		addProblems(op, http.StatusPreconditionFailed, http.StatusPreconditionRequired,
			http.StatusServiceUnavailable, http.StatusInsufficientStorage)
	}
	for _, name := range pathParameter.FindAllStringSubmatch(path, -1) {
		p := openapi3.NewPathParameter(name[1]).WithSchema(openapi3.NewStringSchema()).WithDescription(describePathParameter(path, name[0]))
		op.Parameters = append(openapi3.Parameters{{Value: p}}, op.Parameters...)
		addProblems(op, http.StatusNotFound)
	}
	addProblems(op, http.StatusRequestURITooLong, http.StatusInternalServerError)
	addProblems(op, http.StatusTooManyRequests, http.StatusServiceUnavailable) // limits of callers, overload
	if !strings.HasPrefix(path, "/metrics") && path != "/openapi.yaml" {       // these ignore the query
		addProblems(op, http.StatusBadRequest)
	}
	if op.RequestBody != nil {
		addProblems(op, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
}

func tagOf(path string) string {
	below := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	switch {
	case strings.HasSuffix(path, "/pick"), below("/v1/reports"):
		return "picks"
	case below("/v1/leases"):
		return "leases"
	case below("/v1/snapshot"), below("/v1/files"), below("/v1/history"), below("/v1/clusters/{name}/endpoints"), below("/v1/renewals"), path == "/v1/clusters/{name}/config":
		return "resources"
	case below("/v1/clusters"), below("/v1/overlays"):
		return "clusters"
	case below("/v1/targets"), below("/v1/xds"):
		return "targets"
	default:
		return "daemon"
	}
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// pathParameters describes each parameter by the collection that it is an element of.
var pathParameters = map[string]string{
	"/v1/leases/{id}":                         "the lease's ID",
	"/v1/files/held/{hash}":                   "the hash of the change, from GET /v1/files",
	"/assets/{file}":                          "the file name",
	"/docs/{file}":                            "the file name",
	"/problems/{code}":                        "the error code",
	"/v1/clusters/{name}":                     "the cluster's name, percent-encoded",
	"/v1/clusters/{name}/endpoints/{address}": "the endpoint, as 10.0.0.7:8080 or [2001:db8::7]:8080, percent-encoded",
	"/v1/clusters/{name}/overlays/{id}":       "the overlay's ID",
	"/v1/targets/{name}":                      "xds:///NAME, or NAME alone, percent-encoded",
	"/v1/history/{index}":                     "the index of the change",
}

// describePathParameter panics for a parameter that nothing describes.
func describePathParameter(path, parameter string) string {
	end := strings.Index(path, parameter) + len(parameter)
	d, ok := pathParameters[path[:end]]
	if !ok {
		panic("pathParameters has no " + path[:end])
	}
	return d
}

// addProblems adds errors that the comments of the operation do not describe.
func addProblems(op *openapi3.Operation, statuses ...int) {
	for _, status := range statuses {
		if op.Responses.Status(status) != nil {
			continue
		}
		content := openapi3.Content{jsonType: openapi3.NewMediaType().WithSchemaRef(openapi3.NewSchemaRef(refsPrefix+"Problem", nil))}
		op.Responses.Set(strconv.Itoa(status), &openapi3.ResponseRef{
			Value: openapi3.NewResponse().WithDescription(http.StatusText(status)).WithContent(content),
		})
	}
}

var routerComment = regexp.MustCompile(`@Router\s+(\S+) \[(\w+)\]`)

// nameOperations gives each operation that has a handler of its own the name of the handler as ID.
func nameOperations(doc *openapi3.T, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("read the names of handlers: %w", err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if routes := routerComment.FindAllStringSubmatch(f.Doc.Text(), -1); len(routes) == 1 {
				path, method := routes[0][1], routes[0][2]
				doc.Paths.Value(path).GetOperation(strings.ToUpper(method)).OperationID = f.Name.Name
			}
		}
	}
	return nil
}
