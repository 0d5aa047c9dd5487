package actors

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kvactor/kvactor/internal/protocol"
)

// fuse lets tests and the script protocol make an actor panic as a bug in it
// would: at its next message, or in the middle of its next change.
type fuse struct {
	state atomic.Int64 // 0: not lit, 1: at the next message, n+2: after n parts of a change
}

func (f *fuse) light() { f.state.Store(1) }

// lightWithin makes the actor panic after so many parts of its next change.
func (f *fuse) lightWithin(parts int) { f.state.Store(int64(max(0, parts)) + 2) }

// lit tells whether the actor panics at its next message.
func (f *fuse) lit() bool { return f.state.Load() == 1 }

// burn panics if the actor is to panic at its next message.
func (f *fuse) burn(name string) {
	if f.lit() && f.state.CompareAndSwap(1, 0) {
		blow(name)
	}
}

// within tells whether a change that begins now is to break off, and after how
// many parts.
func (f *fuse) within() (parts int, breaks bool) {
	n := f.state.Load()
	return int(n - 2), n > 1 && f.state.CompareAndSwap(n, 0)
}

// step counts one part of a change and panics when there have been enough.
func (f *fuse) step(name string) {
	n := f.state.Load()
	switch {
	case n < 2:
	case n > 2:
		f.state.CompareAndSwap(n, n-1)
	case f.state.CompareAndSwap(2, 0):
		blow(name)
	}
}

// blow is the panic.
func blow(name string) { panic(fmt.Sprintf("%s: panic on request", name)) }

// upTo takes up to n of a list, and from n what it has taken.
func upTo[T any](list []T, n *int) []T {
	k := min(*n, len(list))
	*n -= k
	return list[:k]
}

// cutApply is the first parts of an Apply.
func cutApply(m *protocol.Apply, parts int) *protocol.Apply {
	c, n := *m, parts
	c.Moves, c.Takeovers, c.Claims = upTo(m.Moves, &n), upTo(m.Takeovers, &n), upTo(m.Claims, &n)
	c.Stores, c.ReleasedSymbols = upTo(m.Stores, &n), upTo(m.ReleasedSymbols, &n)
	return &c
}

// cutWork is the first operations of a batch; the one after them is done for
// half of its pages.
func cutWork(m *protocol.PoolWork, parts int) *protocol.PoolWork {
	c := *m
	c.Ops = slices.Clone(upTo(m.Ops, &parts))
	if k := len(c.Ops); k < len(m.Ops) && m.Ops[k].Kind != protocol.Take {
		half := m.Ops[k]
		half.Pages = half.Pages[:len(half.Pages)/2]
		half.Blocks = half.Blocks[:min(len(half.Blocks), len(half.Pages))]
		c.Ops = append(c.Ops, half)
	}
	return &c
}

// cutMove is the first parts of a Move.
func cutMove(m *protocol.Move, parts int) *protocol.Move {
	c, n := *m, parts
	c.Effects, c.Pools = upTo(m.Effects, &n), slices.Clone(m.Pools)
	for p := range c.Pools {
		q := &c.Pools[p]
		q.Pins, q.Unpins, q.Touches = upTo(q.Pins, &n), upTo(q.Unpins, &n), upTo(q.Touches, &n)
		q.Victims, q.Copies, q.Onboards = upTo(q.Victims, &n), upTo(q.Copies, &n), upTo(q.Onboards, &n)
	}
	c.Marks, c.Queries = upTo(m.Marks, &n), nil
	return &c
}
