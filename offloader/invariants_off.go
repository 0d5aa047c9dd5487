//go:build !invariants

package offloader

// invariants makes every change be followed by Check.
const invariants = false
