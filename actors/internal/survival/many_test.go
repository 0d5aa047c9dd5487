//go:build !race && !invariants

package survival_test

// many is how many blocks are enough to show what a shape costs.
const (
	many    = 100_000
	watched = false
)
