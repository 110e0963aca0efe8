// Package text reads JSON and YAML without a schema: it converts YAML to JSON and back,
// limits the cost of reading either, reads JSON value by value, splits JSON objects, and finds
// the line and column of a field.
package text
