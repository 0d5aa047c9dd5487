package actors

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

// The functions of this file make the part of a message that an actor serves before
// it panics within a change, on request of a failpoint.

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
