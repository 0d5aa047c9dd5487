package bench

import (
	"os"
	"testing"
)

// closers end what benchmarks share.
var closers []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range closers {
		c()
	}
	os.Exit(code)
}
