//go:build race || invariants

package survival_test

// many is less where each step is watched: invariants walk all pages at each. What
// a step costs then says nothing.
const (
	many    = 3000
	watched = true
)
