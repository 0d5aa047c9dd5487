package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TakeEvents gives the events caused since the last call, oldest first, without
// ids and with blocks that have no names yet; they are the caller's. It is nil
// when events are not recorded.
func (t *Tree) TakeEvents() []protocol.Event {
	e := t.log.events
	t.log.events, t.log.floor, t.log.most = nil, 0, len(e)
	return e
}

// TakeGone gives the namings whose last block has gone since the last call; they
// are the caller's, and pile up until taken. After the events of TakeEvents at the
// same moment nothing speaks of them, or comes behind them.
func (t *Tree) TakeGone() []*protocol.Naming {
	gone := t.log.gone
	t.log.gone = nil
	return gone
}

// name makes the naming of the blocks of node x from index i on, which have
// just been made, if events are recorded. A hash is a chain over everything
// before a block, so the naming points to that of the block before, and stays
// right when the blocks themselves are gone.
func (t *Tree) name(x, i int32) {
	if !t.recording {
		return
	}
	k := &protocol.Naming{Depth: t.nodes[x].depth + i, Blocks: t.nodes[x].n - i, Fresh: true}
	t.spell(x, i, k)
	if b := t.prior(x, i); b != protocol.NoBlock {
		k.After, k.At = t.naming(b)
	} else {
		ns := t.roots[t.nodes[t.parentOf(x)].root].namespace
		k.Namespace = &ns
	}
	slot := t.namings.add(k)
	for _, b := range t.ids(x)[i:] {
		t.blocks.naming[b] = slot
	}
	t.log.fresh = append(t.log.fresh, k)
}

// spell gives naming k the tokens of the blocks of node x from index i on.
func (t *Tree) spell(x, i int32, k *protocol.Naming) {
	tokens := t.tokensFrom(x, i)
	k.Tokens = t.symbols.into(t.spares.take(len(tokens)), tokens)
	if !t.symbols.none() && len(fromSymbol(tokens)) > 0 {
		covers := t.symbols.covers(tokens)
		k.Covers = &covers
	}
}

// unname lets go what freed blocks were named by.
func (t *Tree) unname(ids []protocol.BlockID) {
	if !t.recording {
		return
	}
	for len(ids) > 0 {
		slot, n := t.blocks.naming[ids[0]], 1
		for n < len(ids) && t.blocks.naming[ids[n]] == slot {
			n++
		}
		if k := t.namings.drop(slot, int32(n)); k != nil {
			t.log.gone = append(t.log.gone, k)
		}
		ids = ids[n:]
	}
}

// namings are what blocks are named by, by a number: a pointer for each block
// would have to be told to the garbage collector whenever it is written.
type namings struct {
	list []*protocol.Naming // nil: the number is free
	left []int32            // blocks of each that are in the tree
	free []int32
}

// add gives a naming a number; all its blocks are in the tree.
func (s *namings) add(k *protocol.Naming) int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		s.list[slot], s.left[slot] = k, k.Blocks
		return slot
	}
	s.list, s.left = append(s.list, k), append(s.left, k.Blocks)
	return int32(len(s.list) - 1)
}

// drop notes that n blocks of a naming are gone, and gives the naming if they
// were the last.
func (s *namings) drop(slot, n int32) *protocol.Naming {
	if s.left[slot] -= n; s.left[slot] > 0 {
		return nil
	}
	k := s.list[slot]
	s.list[slot] = nil
	s.free = append(s.free, slot)
	return k
}

// tokensFrom are the tokens of node x from block i on.
func (t *Tree) tokensFrom(x, i int32) []messages.Token {
	if t.nodes[x].part > 0 {
		return t.tokensAt(x, 0)
	}
	return t.tokens(x)[int(i)*t.tpb:]
}

// padding is how many tokens at the end of block i of node x are none of the
// host's: those behind the end of an encoder's input.
func (t *Tree) padding(x, i int32) int32 {
	if !t.nodes[x].cross {
		return 0
	}
	end := (t.nodes[x].depth + i + 1) * int32(t.tpb)
	for t.nodes[x].root == none {
		x = t.parentOf(x)
	}
	return max(0, end-t.roots[t.nodes[x].root].input)
}

// prior is the block before block i of node x, or NoBlock.
func (t *Tree) prior(x, i int32) protocol.BlockID {
	if i > 0 {
		return t.ids(x)[i-1]
	}
	return t.tail(t.parentOf(x))
}

// naming is what b is named by, and which of its blocks b is.
func (t *Tree) naming(b protocol.BlockID) (k *protocol.Naming, at int32) {
	k = t.namings.list[t.blocks.naming[b]]
	return k, t.depth(b) - k.Depth
}

// span is b alone.
func (t *Tree) span(b protocol.BlockID) protocol.Span {
	k, at := t.naming(b)
	return protocol.Span{Naming: k, From: at, Count: 1, Priority: t.blocks.priority[b]}
}

// open is the last event if the message under way may add to it.
func (t *Tree) open(kind messages.EventType, p int) *protocol.Event {
	j := &t.log
	if n := len(j.events); n > j.floor {
		if e := &j.events[n-1]; int(e.Pool) == p && e.Type == kind {
			return e
		}
	}
	return nil
}

// tell records an event of one span.
func (t *Tree) tell(kind messages.EventType, p int, s protocol.Span) *protocol.Event {
	j := &t.log
	if j.events == nil {
		j.events = make([]protocol.Event, 0, max(1, min(j.most, spanChunk)))
	}
	j.events = append(j.events, protocol.Event{Event: messages.Event{Type: kind, Pool: messages.PoolID(p)}, Spans: j.one(s)})
	return &j.events[len(j.events)-1]
}

// tellStored records that pool p, which did not hold the blocks of a segment,
// does. They have one priority.
func (t *Tree) tellStored(g segment, p int) {
	if !t.recording {
		return
	}
	ids := t.ids(g.node)
	for g.lo < g.hi {
		s := t.span(ids[g.lo])
		s.Count = t.alike(ids[g.lo:g.hi], &s)
		if !s.Naming.Fresh {
			s.Tokens = t.symbols.hosts(t.tokensFrom(g.node, g.lo)[:t.size(g.node, s.Count)])
		}
		s.Padding = t.padding(g.node, g.lo+s.Count-1)
		e := t.open(messages.EventStored, p)
		switch {
		case e == nil || t.prior(g.node, g.lo) != t.log.last:
			t.tell(messages.EventStored, p, s)
		case !e.Spans[len(e.Spans)-1].Join(&s):
			e.Spans = append(e.Spans, s)
		}
		g.lo += s.Count
		t.log.last = ids[g.lo-1]
	}
}

// size is how many tokens n blocks of node x have.
func (t *Tree) size(x, n int32) int {
	if part := t.nodes[x].part; part > 0 {
		return int(part)
	}
	return int(n) * t.tpb
}

// alike is how many of consecutive blocks are of the naming of the first, s. A
// block's naming has all before it down to the naming's first, so those that
// are not of it are the last.
func (t *Tree) alike(ids []protocol.BlockID, s *protocol.Span) int32 {
	ids = ids[:min(len(ids), int(s.Naming.Blocks-s.From))]
	slot := t.blocks.naming[ids[0]]
	if t.blocks.naming[ids[len(ids)-1]] == slot {
		return int32(len(ids))
	}
	n, _ := slices.BinarySearchFunc(ids, slot, func(b protocol.BlockID, slot int32) int {
		if t.blocks.naming[b] == slot {
			return -1
		}
		return 1
	})
	return int32(n)
}

// tellRemoved records that pool p does not hold b any more.
func (t *Tree) tellRemoved(b protocol.BlockID, p int) {
	if t.recording {
		t.tellGone(p, t.span(b))
	}
}

// tellLeft records that pool p does not hold the blocks of a segment any more,
// the last one first.
func (t *Tree) tellLeft(g segment, p int) {
	if !t.recording {
		return
	}
	ids := t.ids(g.node)
	for g.lo < g.hi {
		s := t.span(ids[g.hi-1])
		s.Count = min(g.hi-g.lo, s.From+1)
		s.From -= s.Count - 1
		s.Backwards = s.Count > 1
		t.tellGone(p, s)
		g.hi -= s.Count
	}
}

// tellGone records that pool p does not hold the blocks of a span any more.
func (t *Tree) tellGone(p int, s protocol.Span) {
	e := t.open(messages.EventRemoved, p)
	if e == nil {
		t.tell(messages.EventRemoved, p, s)
	} else if !e.Spans[len(e.Spans)-1].Join(&s) {
		e.Spans = append(e.Spans, s)
	}
}

// tellTier records that pool p keeps b in the other tier now.
func (t *Tree) tellTier(b protocol.BlockID, p int, to messages.Tier) {
	if !t.recording {
		return
	}
	e := t.tell(messages.EventUpdated, p, t.span(b))
	e.TierChanged, e.OldTier, e.NewTier = true, messages.Secondary-to, to
}

// tellPriority records the change from old for pool p.
func (t *Tree) tellPriority(b protocol.BlockID, p int, old messages.Priority) {
	if !t.recording {
		return
	}
	e := t.tell(messages.EventUpdated, p, t.span(b))
	e.OldPriority, e.NewPriority = old, t.blocks.priority[b]
}

// Snapshot answers every key of the tree as stored events, parents before
// children in each pool; none if events are not recorded.
func (t *Tree) Snapshot(s *protocol.Snapshot) {
	s.Events = s.Events[:0]
	if !t.recording {
		return
	}
	for x := range t.walkAll() {
		if t.nodes[x].n == 0 {
			continue
		}
		tokens := t.symbols.hosts(t.tokensFrom(x, 0))
		for p := range t.pools {
			s.Events = t.keys(s.Events, x, p, tokens)
		}
	}
}

// keys adds the keys of node x, which has these tokens, in pool p: one event
// for each run without holes.
func (t *Tree) keys(events []protocol.Event, x int32, p int, tokens []messages.Token) []protocol.Event {
	open := false
	for i, l := range t.locations(x, p) {
		_, tier, held := l.Page()
		if !held {
			open = false
			continue
		}
		s := t.span(t.ids(x)[i])
		s.Padding = t.padding(x, int32(i))
		s.Tier, s.Tokens = tier, tokens[i*t.tpb:min(len(tokens), (i+1)*t.tpb)]
		if !open {
			events = append(events, protocol.Event{Event: messages.Event{Type: messages.EventStored, Pool: messages.PoolID(p)}})
			open = true
		}
		e := &events[len(events)-1]
		if n := len(e.Spans); n == 0 || !e.Spans[n-1].Join(&s) {
			e.Spans = append(e.Spans, s)
		}
	}
	return events
}

// checkNaming tells whether block i of node x is named by what it is and what
// is before it.
func (t *Tree) checkNaming(x, i int32) bool {
	b := t.ids(x)[i]
	k, at := t.naming(b)
	if at < 0 || at >= k.Blocks {
		return false
	}
	before := t.prior(x, i)
	if before == protocol.NoBlock {
		return at == 0 && k.After == nil && *k.Namespace == t.roots[t.nodes[t.parentOf(x)].root].namespace
	}
	parent, place := t.naming(before)
	if at == 0 {
		return parent == k.After && place == k.At
	}
	return parent == k && place == at-1
}
