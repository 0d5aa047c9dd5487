//go:build !invariants

package tree

// invariants makes every message end with a check of the whole tree.
const invariants = false
