package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// recurrent tells whether there are state pools.
func (o *oracle) recurrent() bool {
	return slices.ContainsFunc(o.pools, func(s PoolShape) bool { return s.State })
}

// checkpointed tells whether all state pools have the checkpoint of a block.
func (o *oracle) checkpointed(b *oblock) bool {
	for p, s := range o.pools {
		if s.State && b.places[p] == protocol.Nowhere {
			return false
		}
	}
	return true
}

// matchStates shortens a match to the longest that ends at a checkpoint: of a whole
// block, or of a block stored in part that every pool holds.
func (o *oracle) matchStates(m *omatch, ns space, prompt []atom, partial bool) {
	m.attention, m.attentionSource = m.length, m.source
	m.attentionWhole = m.length / o.tpb * o.tpb
	for ok := false; !ok; m.attentionWhole -= o.tpb {
		if ok, _ = o.feasible(ns, prompt, m.attentionWhole); ok {
			break
		}
	}
	for m.length, m.source = len(prompt), nil; m.length > 0; m.length-- {
		b := o.find(ns, prompt[:m.length])
		whole := m.length%o.tpb == 0
		if b == nil || !o.checkpointed(b) || !whole && (!partial || !o.everywhere(b)) {
			continue
		}
		if ok, _ := o.feasible(ns, prompt, m.length); !ok {
			continue
		}
		if m.checkpoint = b; !whole {
			m.source = b
		}
		return
	}
}

// compareStates compares what a match says of states.
func (m *model) compareStates(it *protocol.MatchItem, want omatch) {
	if !m.oracle.recurrent() || it.Cross {
		return
	}
	require.Equal(m, want.attention, it.Attention, "attention")
	require.Equal(m, want.attentionWhole, it.AttentionWhole, "attention without partial reuse")
	m.same(want.attentionSource, it.AttentionSource.Block)
	m.same(want.checkpoint, it.Checkpoint)
	if want.checkpoint == nil {
		return
	}
	for p, s := range m.oracle.pools {
		at := protocol.Nowhere
		if s.State {
			at = want.checkpoint.places[p]
		}
		require.Equal(m, at, it.CheckpointPages[p])
	}
}

// same compares a block of the oracle with one of the tree.
func (m *model) same(want *oblock, b protocol.BlockID) {
	if want == nil {
		require.Equal(m, protocol.NoBlock, b)
		return
	}
	require.NotEqual(m, protocol.NoBlock, b, want.key())
	ns, got := fullOf(m.tree, b)
	require.Equal(m, want.key(), keyOf(ns, got))
}

// handOver draws the pages that a store hands over, one for each state pool.
func (m *model) handOver(s *protocol.StoreItem) {
	if s.Cross || m.int(0, 1, "find end") == 0 {
		return
	}
	s.FindEnd = true
	for _, shape := range m.oracle.pools {
		page := messages.NoPage
		if shape.State && m.int(0, 1, "hand over") == 0 {
			m.page++
			page = m.page
		}
		s.HandOver = append(s.HandOver, page)
	}
}

// findEnd is what a store answers of the block where it ends; the pages that it gives
// over become checkpoints.
func (o *oracle) findEnd(s *protocol.StoreItem, full []atom) (end *oblock, lacks []messages.PoolID) {
	if !s.FindEnd {
		return nil, nil
	}
	if end = o.find(space{s.Namespace, s.Cross}, full[:s.To]); end == nil {
		return nil, nil
	}
	for p, shape := range o.pools {
		if !shape.State || end.places[p] != protocol.Nowhere {
			continue
		}
		lacks = append(lacks, messages.PoolID(p))
		if s.HandOver[p] != messages.NoPage {
			end.places[p] = protocol.OnDevice(s.HandOver[p])
		}
	}
	return end, lacks
}

// wantEnd is what a store is to answer of the block where it ends.
type wantEnd struct {
	block *oblock
	lacks []messages.PoolID
}

// compareEnd compares the answer. A later store of the same message may have changed
// the priority of the block.
func (m *model) compareEnd(s *protocol.StoreItem, want wantEnd) {
	if s.FindEnd {
		m.same(want.block, s.End.Block)
		require.Equal(m, want.lacks, append([]messages.PoolID(nil), s.End.Lacks...))
	}
}

// Checkpoint gives blocks that are stored the checkpoints that they lack.
func (m *model) Checkpoint(*rapid.T) {
	m.oracle.expire(m.now)
	keys := m.mirrors.index()
	for _, b := range m.oracle.blocks {
		for p, s := range m.oracle.pools {
			if s.State && !b.ns.cross && b.places[p] == protocol.Nowhere && m.int(0, 3, "checkpoint") == 0 {
				m.page++
				b.places[p] = protocol.OnDevice(m.page)
				m.work.Checkpoints = append(m.work.Checkpoints, protocol.Checkpoint{Pool: messages.PoolID(p), Block: keys[b.key()], Page: m.page})
			}
		}
	}
	m.apply()
}

// A match ends where a checkpoint is: at the block that is stored in part when the
// prompt has all its tokens, else at a boundary; never inside a block.
func TestMatchesEndAtCheckpoints(t *testing.T) {
	tree := New(Config{TokensPerBlock: 4, Pools: []PoolShape{{}, {State: true}}})
	tokens := []messages.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	a := protocol.Apply{Stores: []protocol.StoreItem{{
		Tokens: tokens, To: 10, Tables: [][]messages.PageID{{0, 1, 2}}, Prompt: 10,
		FindEnd: true, HandOver: []messages.PageID{messages.NoPage, 7},
	}}}
	tree.Apply(&a)
	require.NotEqual(t, protocol.NoBlock, a.Stores[0].End.Block)
	require.Equal(t, []messages.PoolID{1}, a.Stores[0].End.Lacks)
	match := func(tokens ...messages.Token) *protocol.MatchItem {
		m := protocol.Match{Items: []protocol.MatchItem{{Tokens: tokens, Limit: len(tokens), Partial: true}}}
		tree.Match(&m)
		return &m.Items[0]
	}
	all := match(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	require.Equal(t, 10, all.Matched)
	require.Equal(t, protocol.OnDevice(7), all.CheckpointPages[1])
	cut := match(1, 2, 3, 4, 5, 6, 7, 8, 9)
	require.Zero(t, cut.Matched, "no state is there after nine tokens, nor at a boundary before")
	require.Equal(t, 9, cut.Attention)
	require.Equal(t, 8, cut.AttentionWhole)
	require.Panics(t, func() { tree.attachCheckpoint(all.Checkpoint, 1, 8) }, "the block has a checkpoint")
	tree.Apply(&protocol.Apply{Checkpoints: []protocol.Checkpoint{{Pool: 1, Block: all.IDs[1], Page: 3}}})
	require.Equal(t, 8, match(1, 2, 3, 4, 5, 6, 7, 8, 9).Matched)
	require.NoError(t, tree.Check())
}
