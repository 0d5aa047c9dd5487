package actors

import (
	"fmt"
	"sync/atomic"
)

// fuse lets tests and the script protocol make an actor panic at its next
// message, as a bug in it would.
type fuse struct{ lit atomic.Bool }

// burn panics if the fuse is lit.
func (f *fuse) burn(name string) {
	if f.lit.CompareAndSwap(true, false) {
		panic(fmt.Sprintf("%s: panic on request", name))
	}
}
