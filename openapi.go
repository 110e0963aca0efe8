// Package lbd holds the contract of lbd's HTTP API.
package lbd

import _ "embed"

// OpenAPI is openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
