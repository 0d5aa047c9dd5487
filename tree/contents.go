package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Contents answers every block of the tree.
func (t *Tree) Contents(c *protocol.Contents) {
	c.Blocks = c.Blocks[:0]
	index := make([]int, len(t.base.arena.index.node)) // in c.Blocks, by block
	var ns messages.Namespace
	for x := range t.base.walkAll() {
		if r := t.base.arena.nodes[x].root; r != none {
			ns = t.base.roots[r].namespace
			continue
		}
		// Parents come first in the walk, so the index of the parent is known.
		parent := -1
		if b := t.base.arena.tail(t.base.parentOf(x)); b != protocol.NoBlock {
			parent = index[b]
		}
		for i, b := range t.base.arena.ids(x) {
			tokens := t.base.arena.tokensAt(x, int32(i))
			tokens = tokens[:len(tokens)-int(t.base.padding(x, int32(i)))]
			pages := make([]protocol.Location, len(t.base.arena.pools))
			for p := range pages {
				pages[p] = t.base.arena.locations(x, p)[i]
			}
			c.Blocks = append(c.Blocks, protocol.Content{
				Parent: parent, Namespace: ns, Depth: int(t.base.arena.nodes[x].depth) + i, Cross: t.base.arena.nodes[x].cross,
				Tokens: t.base.symbols.originals(tokens), Covers: t.base.symbols.covers(tokens), Pages: pages,
			})
			parent = len(c.Blocks) - 1
			index[b] = parent
		}
	}
}

// ListLocations lists every place where a pool keeps a block, and counts the references of
// all symbols anew.
func (t *Tree) ListLocations(m *protocol.ListLocations) {
	m.Blocks = m.Blocks[:0]
	t.countSymbols(m.Held)
	salt := ""
	for x := range t.base.walkAll() {
		if r := t.base.arena.nodes[x].root; r != none {
			salt = t.base.roots[r].namespace.Salt
		}
		ids := t.base.arena.ids(x)
		for p := range t.base.arena.pools {
			for i, at := range t.base.arena.locations(x, p) {
				if at == protocol.Nowhere {
					continue
				}
				b := ids[i]
				// The answer restores pools after a failure, and they must not get a
				// priority that has ended.
				t.base.expireNow(b)
				until, _ := t.base.timers.of(b)
				m.Blocks = append(m.Blocks, protocol.BlockLocation{
					Pool: messages.PoolID(p), Block: b, At: at, Depth: t.base.arena.nodes[x].depth + int32(i), Priority: t.base.blocks.priority[b],
					Until: until, Salt: salt, Front: t.frontOf(p, x, int32(i)),
				})
			}
		}
	}
}

// countSymbols makes the references of symbols those of stored blocks and of held prompts.
func (t *Tree) countSymbols(held []protocol.HeldSymbols) {
	s := &t.base.symbols
	refs := make([]int32, len(s.entries))
	add := func(tokens []messages.Token) {
		for tokens = fromSymbol(tokens); len(tokens) > 0; tokens = fromSymbol(tokens[1:]) {
			refs[entry(tokens[0])]++
		}
	}
	if !s.none() {
		for x := range t.base.walkAll() {
			for i := range t.base.arena.ids(x) {
				add(t.base.arena.tokensAt(x, int32(i)))
			}
		}
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
// those of a node every key of theirs; nothing if events are not recorded. What changes
// after it is recorded again, if it was only counted.
func (t *Tree) Snapshot(s *protocol.Snapshot) {
	s.Keys = &protocol.Changes{}
	if !t.base.recording {
		return
	}
	t.base.log.counting = false
	for x := range t.base.walkAll() {
		if t.base.arena.nodes[x].n == 0 {
			continue
		}
		// The record is a new one. Changes that have not been taken yet are not
		// touched, and they are older than the snapshot.
		t.base.enter(s.Keys, segment{x, 0, t.base.arena.nodes[x].n})
		for p := range t.base.arena.pools {
			t.base.keys(s.Keys, x, p)
		}
	}
}
