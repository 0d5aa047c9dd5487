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

// statesAlone tells whether there are no pools of tokens.
func (o *oracle) statesAlone() bool { return o.pools[0].State }

// offersState tells whether an offer is of a block without tokens: by a state of its own, or
// because it is there.
func (o *oracle) offersState(s *protocol.StoreItem, full []atom) bool {
	return o.statesAlone() && s.HandOver != nil &&
		(o.find(space{Namespace: s.Namespace}, full[:s.To]) != nil ||
			slices.ContainsFunc(s.HandOver,
				func(page messages.PageID) bool { return page != messages.NoPage }))
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
	if m.int(0, 2, "only asks") == 0 {
		return
	}
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
func (o *oracle) findEnd(
	s *protocol.StoreItem, full []atom,
) (end *oblock, lacks []messages.PoolID) {
	if !s.FindEnd {
		return nil, nil
	}
	end = o.find(space{s.Namespace, s.Cross}, full[:s.To])
	for p, shape := range o.pools {
		if !shape.State || end == nil && !o.statesAlone() || end != nil &&
			end.places[p] != protocol.Nowhere {
			continue
		}
		lacks = append(lacks, messages.PoolID(p))
		if p < len(s.HandOver) && s.HandOver[p] != messages.NoPage {
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
		if b.ns.cross || !m.oracle.recurrent() || m.int(0, 3, "checkpoint") > 0 {
			continue
		}
		s := protocol.StoreItem{Namespace: b.ns.Namespace, Session: b.session, From: m.oracle.start(b),
			To: len(b.full), FindEnd: true}
		for c := keys[b.key()]; c != protocol.NoBlock; c = m.tree.arena.blocks[c].parent {
			s.Tokens = append(slices.Clone(m.tree.arena.tokensOf(c)), s.Tokens...)
		}
		for p, shape := range m.oracle.pools {
			s.HandOver = append(s.HandOver, messages.NoPage)
			s.Tables = append(s.Tables, slices.Repeat([]messages.PageID{messages.NoPage}, len(b.full)))
			if shape.State && b.places[p] == protocol.Nowhere && m.int(0, 3, "page") > 0 {
				m.page++
				s.HandOver[p] = m.page
			}
		}
		m.oracle.store(&s, b.full, m.now)
		m.oracle.findEnd(&s, b.full)
		m.work.Stores = append(m.work.Stores, s)
	}
	m.apply()
}

// stateAt offers a page of the state pool as the checkpoint of the block that ends a prompt.
func stateAt(page messages.PageID, pools int, tokens ...messages.Token) protocol.StoreItem {
	s := protocol.StoreItem{Tokens: tokens, To: len(tokens), Prompt: len(tokens), FindEnd: true}
	s.HandOver = slices.Repeat([]messages.PageID{messages.NoPage}, pools)
	s.HandOver[pools-1] = page
	return s
}

// TestStatesAlone: without pools of tokens a block comes with its state, and leaves with it.
func TestStatesAlone(t *testing.T) {
	tree := New(Config{TokensPerBlock: 2, Pools: []PoolShape{{State: true}}})
	match := func(tokens ...messages.Token) *protocol.MatchItem {
		m := protocol.Match{Items: []protocol.MatchItem{{Tokens: tokens, Limit: len(tokens),
			Partial: true}}}
		tree.Match(&m)
		return &m.Items[0]
	}
	offer := func(s protocol.StoreItem) protocol.StoredEnd {
		a := protocol.Apply{Stores: []protocol.StoreItem{s}}
		tree.Apply(&a)
		require.NoError(t, tree.Check())
		return a.Stores[0].End
	}
	asked := stateAt(messages.NoPage, 1, 1, 2, 3, 4)
	asked.Retention = &messages.Retention{Ranges: []messages.RetentionRange{{Start: 0, End: 4,
		Priority: 80}}}
	end := offer(asked)
	require.Equal(t, protocol.StoredEnd{Block: protocol.NoBlock, Priority: 80,
		Lacks: []messages.PoolID{0}}, end)
	require.Empty(t, tree.arena.blocks, "nothing is stored for the question")

	require.NotEqual(t, protocol.NoBlock, offer(stateAt(7, 1, 1, 2, 3, 4)).Block)
	offer(stateAt(8, 1, 1, 2, 3, 4, 5, 6, 7))
	m := match(1, 2, 3, 4, 5, 6, 7, 9)
	require.Equal(t, 7, m.Matched, "a part that the prompt begins with")
	require.Equal(t, protocol.OnDevice(8), m.CheckpointPages[0])
	m = match(1, 2, 3, 4, 5, 6, 8)
	require.Equal(t, 4, m.Matched)
	require.Equal(t, 6, m.Attention,
		"so far the tree knows the prompt: a state there would have been of use")
	require.Equal(t, 2, tree.Blocks())

	drop := protocol.Apply{Moves: []protocol.BlockMove{{Block: match(1, 2, 3, 4, 5, 6, 7).Checkpoint,
		To: protocol.Nowhere}}}
	tree.Apply(&drop)
	require.NoError(t, tree.Check())
	require.Equal(t, 4, match(1, 2, 3, 4, 5, 6, 7).Attention, "nothing leads behind the last state")
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
		m := protocol.Match{Items: []protocol.MatchItem{{Tokens: tokens, Limit: len(tokens),
			Partial: true}}}
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
	require.Panics(t, func() { tree.attachCheckpoint(all.Checkpoint, 1, 8) },
		"the block has a checkpoint")
	tree.Apply(&protocol.Apply{Stores: []protocol.StoreItem{stateAt(3, 2, tokens[:8]...)}})
	require.Equal(t, 8, match(1, 2, 3, 4, 5, 6, 7, 8, 9).Matched)
	require.NoError(t, tree.Check())
}
