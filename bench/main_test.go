package bench

import (
	"os"
	"testing"
)

// closers end what benchmarks share.
var closers []func()

// TestMain runs the tests and benchmarks, or one side of a comparison for another process.
func TestMain(m *testing.M) {
	if name := os.Getenv(sideVariable); name != "" {
		runSide(name)
		return
	}
	code := m.Run()
	for _, c := range closers {
		c()
	}
	os.Exit(code)
}
