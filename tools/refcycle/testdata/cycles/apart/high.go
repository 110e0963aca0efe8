package apart

// High refers to low.go, which has only a local variable named like it.
var High, high = low + local(), 2

var _ = high
