package scripttest_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/internal/scripttest"
)

// Each script begins with a state of its own, and arguments are read as they stand.
func TestWalk(t *testing.T) {
	scripttest.Walk(t, func(*testing.T) scripttest.Serve {
		commands := 0
		return func(t *testing.T, d *datadriven.TestData) string {
			commands++
			return fmt.Sprintf("command %d: n is %d, list %v\n", commands,
				scripttest.Number(t, d, "n", -1), scripttest.Numbers(t, d, "list"))
		}
	})
}
