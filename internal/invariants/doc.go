// Package invariants has the switch for checks that cost as much as what they check.
// With the build tag invariants every core calls its Check after each change and panics
// on what it finds; the coordinator also compares all actors with each other between
// rounds:
//
//	go test -tags invariants ./...
//
// Without the tag Enabled is a constant false, so the compiler removes the calls.
package invariants
