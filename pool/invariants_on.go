//go:build invariants

package pool

// invariants makes every change check the whole pool.
const invariants = true
