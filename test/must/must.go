// Package must ends tests on errors. Packages of tests name its function noError.
package must

// NoError ends a test on an error.
func NoError(tb interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
