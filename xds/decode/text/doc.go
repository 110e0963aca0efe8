// Package text reads JSON and YAML as texts, without knowing what they mean: it turns
// YAML into JSON and back, bounds what either may cost to read, takes JSON objects
// apart, and finds the line and column of a field.
package text
