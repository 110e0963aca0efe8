package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// version is the OpenAPI version that is written: tools read 3.0 best.
const version = "3.0.3"

// The media types of answers that Swagger 2.0 has no words for.
const (
	problemType  = "application/problem+json"
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
	imageType    = "image/png"
	plainType    = "text/plain"
	htmlType     = "text/html"
)

// What references begin with.
const (
	refsPrefix     = "#/components/schemas/"
	refusalsPrefix = "#/components/responses/"
)

// complete says what the comments cannot, and checks the whole.
func complete(doc *openapi3.T) error {
	doc.OpenAPI = version
	doc.Info.Contact = nil
	doc.Servers = openapi3.Servers{{URL: "/", Description: "where this contract was read"}}
	for name, ref := range doc.Components.Schemas {
		completeSchema(name, ref.Value, doc.Components.Schemas)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			derive(path, op)
			deriveIndex(method, path, op)
		}
	}
	addCallers(doc)
	doc.Components.Responses = openapi3.ResponseBodies{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		for method, op := range doc.Paths.Value(path).Operations() {
			completeOperation(method, path, op, doc.Components.Responses)
		}
	}
	addIndexHeader(doc)
	loader := openapi3.NewLoader()
	if err := loader.ResolveRefsIn(doc, nil); err != nil {
		return fmt.Errorf("resolve references: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	return nil
}

// completeSchema says what swag leaves out of a type.
func completeSchema(name string, s *openapi3.Schema, all openapi3.Schemas) {
	switch name {
	case "PickOrPicks": // its fields are the choices
		choices := slices.Collect(maps.Values(s.Properties))
		slices.SortFunc(choices, func(a, b *openapi3.SchemaRef) int { return strings.Compare(a.Ref, b.Ref) })
		*s = openapi3.Schema{OneOf: choices}
	case "Load": // it is only sent, and all of it may be absent
		s.Required = nil
	}
	delete(s.Extensions, "x-enum-varnames") // Go's names
	words := fieldNames(s)
	for property, ref := range s.Properties {
		if ref.Ref != "" {
			continue
		}
		if of := ref.Value.AllOf; len(of) == 1 {
			if t := all[strings.TrimPrefix(of[0].Ref, refsPrefix)]; t != nil && slices.Equal(t.Value.Enum, ref.Value.Enum) {
				ref.Value.Enum = nil // its type lists the same
			}
		}
		ref.Value.Description = words.Replace(describe(property, ref.Value.Description))
		if isTime(property) && ref.Value.Type.Is("string") {
			ref.Value.Format = "date-time"
		}
		if ref.Value.Type.Is("integer") && ref.Value.Format == "" {
			ref.Value.Format = "int64"
		}
	}
}

func isTime(property string) bool {
	return property == "time" || property == "since" || strings.HasSuffix(property, "_at")
}

// fieldNames replaces the Go names of a schema's fields, those of several words,
// by the names of its properties.
func fieldNames(s *openapi3.Schema) *strings.Replacer {
	var pairs []string
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		if !strings.Contains(property, "_") {
			continue
		}
		var goName strings.Builder
		for word := range strings.SplitSeq(property, "_") {
			goName.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		pairs = append(pairs, goName.String(), property)
	}
	return strings.NewReplacer(pairs...)
}

// describe makes a Go comment one of the property: in one line, with the
// property's name where Go's was.
func describe(property, comment string) string {
	comment = strings.Join(strings.Fields(comment), " ")
	first, rest, _ := strings.Cut(comment, " ")
	if strings.EqualFold(first, strings.ReplaceAll(property, "_", "")) {
		return property + " " + rest
	}
	return comment
}

// completeOperation says what Swagger 2.0 cannot of an operation.
// It moves the refusals to those of all operations, by status.
func completeOperation(method, path string, op *openapi3.Operation, refusals openapi3.ResponseBodies) {
	if op.OperationID == "" { // a handler of two paths cannot name both
		op.OperationID = strings.ToLower(method) + strings.ReplaceAll(path, "/", "_")
	}
	if op.RequestBody != nil {
		op.RequestBody.Value.Extensions, op.RequestBody.Extensions = nil, nil // the name that Swagger 2.0 gave it
		completeContent(op.RequestBody.Value.Content)
	}
	for status, response := range op.Responses.Map() {
		if isProblem(response.Value.Content) {
			name := "Refused" + status
			refusals[name] = &openapi3.ResponseRef{Value: refusal(response.Value)}
			op.Responses.Set(status, &openapi3.ResponseRef{Ref: refusalsPrefix + name})
			continue
		}
		completeContent(response.Value.Content)
	}
}

// refusal returns a response with the media type of problems, which swag cannot express.
func refusal(r *openapi3.Response) *openapi3.Response {
	for _, media := range r.Content {
		return openapi3.NewResponse().WithDescription(*r.Description).
			WithContent(openapi3.Content{problemType: &openapi3.MediaType{Schema: media.Schema}})
	}
	return r
}

func isProblem(content openapi3.Content) bool {
	for _, media := range content {
		if media.Schema == nil || media.Schema.Ref != refsPrefix+"Problem" {
			return false
		}
	}
	return len(content) > 0
}

// completeContent gives the representations as text, protobuf or an image their own schemas: they
// are not what JSON is.
func completeContent(content openapi3.Content) {
	for media, format := range map[string]string{protobufType: "binary", imageType: "binary", htmlType: "", plainType: ""} {
		if content[media] != nil && (format != "" || content[jsonType] != nil) {
			content[media] = openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema().WithFormat(format))
		}
	}
}
