//go:build !invariants

package events

// invariants: changes are not checked.
const invariants = false
