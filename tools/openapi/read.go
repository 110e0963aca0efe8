package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"path/filepath"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/swaggo/swag"
)

// sources are the packages whose comments and types make the contract. The
// first has the handlers.
var sources = []string{
	"api", "service", "lb/policy", "xds/client", "xds/decode", "xds/files",
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
	if text, err = shortNames(text, maps.Keys(parser.GetSwagger().Definitions)); err != nil {
		return nil, err
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

// renamed are the schemas whose names are ambiguous without their packages.
var renamed = map[string]string{
	"fault.Problem":  "BrokenRule",
	"decode.Problem": "BrokenRule",

	"ledger.Breaker":        "BreakerFill",
	"files.Held":            "HeldChange",
	"files.FileChange":      "HeldFileChange",
	"client.TargetStatus":   "XDSTarget",
	"client.UnappliedField": "XDSUnappliedField",
}

// shortNames removes the packages from the names of schemas in a Swagger 2.0 contract.
func shortNames(contract []byte, names iter.Seq[string]) ([]byte, error) {
	seen := make(map[string]bool)
	var pairs []string
	for name := range names {
		short := cmp.Or(renamed[name], name[strings.LastIndexByte(name, '.')+1:])
		if seen[short] {
			return nil, fmt.Errorf("two schemas are named %s", short)
		}
		seen[short] = true
		pairs = append(pairs, `"#/definitions/`+name+`"`, `"#/definitions/`+short+`"`, `"`+name+`":`, `"`+short+`":`)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(contract))), nil
}
