package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Contents answers every block of the tree.
func (t *Tree) Contents(c *protocol.Contents) {
	c.Blocks = c.Blocks[:0]
	index := make([]int, len(t.arena.blocks)) // in c.Blocks, by block
	for b := range t.arena.walk() {
		r := &t.arena.blocks[b]
		// Parents come first in the walk, so the index of the parent is known.
		parent := -1
		if r.parent != protocol.NoBlock {
			parent = index[r.parent]
		}
		index[b] = len(c.Blocks)
		tokens := t.arena.hostTokens(b)
		pages := make([]protocol.Location, len(t.arena.pools))
		for p := range pages {
			pages[p] = t.arena.locations[p][b]
		}
		c.Blocks = append(c.Blocks, protocol.Content{
			Parent: parent, Namespace: t.arena.roots[r.root].namespace, Depth: int(r.depth),
			Cross:  t.arena.cross(b),
			Tokens: t.arena.symbols.restore(slices.Clone(tokens)), Covers: t.arena.symbols.covers(tokens),
			Pages: pages,
		})
	}
}

// ListLocations lists every place where a pool keeps a block, and counts the references of
// all symbols anew.
func (t *Tree) ListLocations(m *protocol.ListLocations) {
	m.Blocks = m.Blocks[:0]
	t.countSymbols(m.Held)
	for b := range t.arena.walk() {
		for p := range t.arena.pools {
			at := t.arena.locations[p][b]
			if at == protocol.Nowhere {
				continue
			}
			r := &t.arena.blocks[b]
			m.Blocks = append(m.Blocks, protocol.BlockLocation{
				Pool: messages.PoolID(p), Block: b, At: at, Depth: r.depth, Priority: r.priority,
				Salt: t.arena.roots[r.root].namespace.Salt, Front: t.frontOf(p, b),
				Useless: t.arena.toldUseless(p, b),
			})
		}
	}
}

// countSymbols makes the references of symbols those of stored blocks and of held prompts.
func (t *Tree) countSymbols(held []protocol.HeldSymbols) {
	s := &t.arena.symbols
	refs := make([]int32, len(s.values))
	add := func(tokens []messages.Token) { s.each(tokens, func(n int32) { refs[n]++ }) }
	for b := range t.arena.walk() {
		add(t.arena.tokensOf(b))
	}
	for i := range held {
		// A prompt with a symbol that is free may have been released by a change that was not
		// answered.
		if held[i].Lost = slices.ContainsFunc(held[i].Tokens, s.missing); !held[i].Lost {
			add(held[i].Tokens)
		}
	}
	for n := range refs {
		if s.refs[n] > 0 && refs[n] == 0 {
			s.drop(int32(n))
		}
	}
	copy(s.refs, refs)
}

// Snapshot answers all blocks of the tree, parents before children, and behind
// those of a run every key of theirs; nothing if events are not recorded.
func (t *Tree) Snapshot(s *protocol.Snapshot) {
	s.Keys = &protocol.Changes{}
	if !t.recording {
		return
	}
	// The record is a new one. Changes that have not been taken yet are not
	// touched, and they are older than the snapshot.
	changes := t.log.changes
	t.log.changes = s.Keys
	for i := range t.arena.roots {
		for run := range t.arena.walkBelow(t.arena.roots[i].children, nil) {
			t.recordEntered(run)
			for p := range t.arena.pools {
				t.log.event = noEvent
				for _, b := range run {
					if t.arena.locations[p][b] != protocol.Nowhere {
						t.recordStored(b, p)
					}
				}
			}
		}
	}
	t.log.changes = changes
}
