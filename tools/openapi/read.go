package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"path/filepath"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/swaggo/swag"
)

// sources are the packages whose comments and types make the contract. The
// first has the handlers.
var sources = []string{
	"api", "service", "xds/decode",
	"lb/leastrequest", "lb/ringhash", "lb/weightedroundrobin", // what they say of a choice
}

// read reads the comments, which swag understands as Swagger 2.0, and converts
// them to OpenAPI 3.
func read(dir string) (*openapi3.T, error) {
	dirs := make([]string, len(sources))
	for i, s := range sources {
		dirs[i] = filepath.Join(dir, s)
	}
	parser := swag.New(
		swag.SetStrict(true),
		swag.SetDebugger(log.New(io.Discard, "", 0)),
	)
	parser.RequiredByDefault = true
	if err := parser.ParseAPIMultiSearchDir(dirs, "api.go", 0); err != nil {
		return nil, fmt.Errorf("read the comments: %w", err)
	}
	text, err := json.Marshal(parser.GetSwagger())
	if err != nil {
		return nil, fmt.Errorf("encode Swagger 2.0: %w", err)
	}
	var doc openapi2.T
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("decode Swagger 2.0: %w", err)
	}
	v3, err := openapi2conv.ToV3(&doc)
	if err != nil {
		return nil, fmt.Errorf("convert to OpenAPI 3: %w", err)
	}
	return v3, nil
}
