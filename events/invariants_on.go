//go:build invariants

package events

// invariants: every change is followed by a Check.
const invariants = true
