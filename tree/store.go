package tree

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// storer stores what sequences offer, and marks what they claim as used. It serves one offer or
// claim at a time.
type storer struct {
	*holdings
	path      []protocol.BlockID // the blocks of the offer
	entered   []protocol.BlockID // those of them that are new and whole
	retention retentionCover     // of the offer or claim
}

// offer is one StoreItem while it is stored.
type offer struct {
	*protocol.StoreItem
	// stamp is that of all blocks which the offer stores: siblings are never of one
	// offer, so one stamp orders them as well as one for each block.
	stamp uint64
	first int32 // the depth of the first block of the offer
	// Pools [from, to) are those that the offer concerns: poolsOf(Cross), with OnHost the
	// state pools as well. Tables of other pools are not read.
	from, to int
	// the depth of the block that states are offered of in a tree of states alone, else none
	states int32
}

// offered returns the page of block d that the sequence offers to pool p; NoPage if it offers
// none. A limited window may have a shorter table than full attention, and NoPage in it for
// blocks that have left the window.
//
// A page caches at most one block. Forks hold the same page, and one may have stored less of it
// than the other has computed by now: then the page stays with the block that it caches.
func (t *storer) offered(o *offer, p int, d int32) messages.PageID {
	if p >= len(o.Tables) || int(d) >= len(o.Tables[p]) {
		return messages.NoPage
	}
	page := o.Tables[p][d]
	if page == messages.NoPage || o.OnHost || int(page) >= len(t.arena.cached[p]) {
		return page
	}
	if b := t.arena.cached[p][page]; b != protocol.NoBlock && !t.isBlock(o, d, b) {
		return messages.NoPage
	}
	return page
}

// isBlock tells whether b is block d of the offer. Until the path is made, tokens are compared:
// b is cached in a page of the sequence, so what comes before is the same.
func (t *storer) isBlock(o *offer, d int32, b protocol.BlockID) bool {
	if i := int(d - o.first); i < len(t.path) {
		return b == t.path[i]
	}
	first := int(d) * t.arena.tpb
	return slices.Equal(t.arena.tokensOf(b), o.Tokens[first:min(first+t.arena.tpb, o.To)])
}

// offers tells whether the sequence offers block d to some pool. The last pool is
// asked first, because full attention comes last and offers every block.
func (t *storer) offers(o *offer, d int32) bool {
	if d == o.states {
		return true
	}
	for p := o.to - 1; p >= o.from; p-- {
		if t.offered(o, p, d) != messages.NoPage {
			return true
		}
	}
	return false
}

// keepsOnHost tells whether block b of pool p stays in host memory whatever page is
// offered of it.
func (o *offer) keepsOnHost(p int, b protocol.BlockID) bool {
	return p < len(o.KeepOnHost) && slices.Contains(o.KeepOnHost[p], b)
}

// store adds what a sequence offers, and finds the block where the offer ends.
func (t *storer) store(s *protocol.StoreItem) {
	t.storeBlocks(s)
	if s.FindEnd {
		t.findEnd(s)
	}
}

// storeBlocks adds what a sequence offers: first the blocks, then their attributes, then
// the pages, pool by pool. The order is that of what may depend on what: an effect
// carries the priority, and an event names the block.
func (t *storer) storeBlocks(s *protocol.StoreItem) {
	o := offer{StoreItem: s, stamp: t.arena.nextStamp(), first: int32(s.From / t.arena.tpb)}
	o.from, o.to = t.arena.poolsOf(s.Cross)
	if s.OnHost && !s.Cross {
		o.to = t.arena.selfPools // a store has checkpoints as well
	}
	t.log.event = noEvent // runs of two sequences are two events
	whole, end := int32(s.To/t.arena.tpb), int32((s.To+t.arena.tpb-1)/t.arena.tpb)
	if o.states = none; t.offersState(s) {
		o.states = end - 1
	}
	t.path = t.path[:0]
	// A sequence may have released the pages of its last blocks. Blocks in the middle
	// that nothing is offered of are stored all the same, as ghosts: those behind
	// need them.
	for end > o.first && !t.offers(&o, end-1) {
		end--
	}
	if end <= o.first {
		return // what nothing is offered of would be ghosts with nothing behind them
	}
	last := t.makeBlocks(s, min(end, whole))
	if last.block != protocol.NoBlock {
		s.Cursor = t.arena.cursor(last.block)
	}
	if end > whole {
		last.block = t.makePart(last, s.Tokens[int(whole)*t.arena.tpb:s.To])
	}
	t.path = resize(t.path, int(end-o.first))
	for i, b := len(t.path)-1, last.block; i >= 0; i-- {
		t.path[i], b = b, t.arena.blocks[b].parent
	}
	t.attribute(&o)
	for p := o.from; p < o.to; p++ {
		t.attach(&o, p)
	}
	// Whether a block counts depends on all pools, so the treaps are refreshed once, behind
	// the last pool.
	for _, b := range t.path {
		if t.arena.blocks[b].stamp == o.stamp {
			t.arena.refresh(b)
		}
	}
}

// makeBlocks returns the place behind the first n blocks of an offer, and makes those that
// are not there yet.
func (t *storer) makeBlocks(s *protocol.StoreItem, n int32) spot {
	at := t.start(s, n)
	t.entered = t.entered[:0]
	for d := int(t.arena.depthAt(at)); d < int(n); d++ {
		tokens := s.Tokens[d*t.arena.tpb : (d+1)*t.arena.tpb]
		b := t.arena.child(at, tokens)
		if b == protocol.NoBlock {
			b = t.appraiser.newBlock(at, tokens)
			t.entered = append(t.entered, b)
		}
		at.block = b
	}
	t.recordEntered(t.entered)
	return at
}

// start returns where the search for the first n blocks of an offer begins: at or above its
// cursor, if the block is still there, else at the root. With a cursor a sequence that
// generates does not compare its whole prompt for each block.
func (t *storer) start(s *protocol.StoreItem, n int32) spot {
	c := s.Cursor
	if !t.arena.follows(c) {
		return spot{t.arena.makeRoot(s), protocol.NoBlock}
	}
	// The offer may end before the block of the cursor, after a rewind. Every block above
	// the cursor has tokens of this sequence, so nothing is compared.
	at := t.arena.behind(c.Block)
	for t.arena.depthAt(at) > n {
		at = t.arena.before(at.block)
	}
	if invariants.Enabled {
		t.mustLeadTo(at, s.Tokens)
	}
	return at
}

// mustLeadTo panics unless the path from the root to a place has these tokens. It compares
// the whole prompt, which the cursor is there to avoid, so it runs under the build tag
// invariants only.
func (t *storer) mustLeadTo(at spot, tokens []messages.Token) {
	for ; at.block != protocol.NoBlock; at = t.arena.before(at.block) {
		first := int(t.arena.blocks[at.block].depth) * t.arena.tpb
		if !slices.Equal(t.arena.tokensOf(at.block), tokens[first:first+t.arena.tpb]) {
			panic(fmt.Sprintf("tree: a cursor leads to block %d, whose tokens are others", at.block))
		}
	}
}

// makePart finds or makes the block behind a place that is stored in part with these
// tokens. A block with more or fewer tokens is another one, because a match may end inside
// either.
func (t *storer) makePart(at spot, tokens []messages.Token) protocol.BlockID {
	b := t.arena.child(at, tokens)
	if b == protocol.NoBlock {
		b = t.appraiser.newBlock(at, tokens)
		t.recordEntered([]protocol.BlockID{b})
	}
	return b
}

// offersState tells whether an offer to a tree without pools of tokens is of the block that
// it ends with: a state is handed over, or the block is stored already. No other block is
// offered there, as a state belongs to the end alone; the blocks before are ghosts.
func (t *storer) offersState(s *protocol.StoreItem) bool {
	if t.arena.tokenPools > 0 || s.Cross || s.HandOver == nil {
		return false
	}
	if slices.ContainsFunc(s.HandOver,
		func(page messages.PageID) bool { return page != messages.NoPage }) {
		return true
	}
	b := t.blockOf(s)
	return b != protocol.NoBlock && t.arena.held(b)
}

// findEnd answers which block has exactly the tokens of an offer, and gives it the
// pages that the offer hands over. It comes after the store, so it finds what this
// offer has stored and what another sequence had stored before: two sequences with
// equal tokens share one checkpoint.
func (t *storer) findEnd(s *protocol.StoreItem) {
	s.End.Block, s.End.Priority, s.End.Lacks = protocol.NoBlock, 0, s.End.Lacks[:0]
	b := t.blockOf(s)
	switch {
	case b != protocol.NoBlock && (t.arena.held(b) || t.offersState(s)):
		// The caller gives the priority to the page that it copies for the block.
		s.End.Block, s.End.Priority = b, t.arena.blocks[b].priority
	case t.arena.tokenPools == 0:
		// The block comes with its first state.
		t.retention.read(s.Retention, s.Prompt, t.arena.tpb)
		s.End.Priority = t.termOfNew(int32((s.To - 1) / t.arena.tpb)).priority
	default:
		// A ghost gets no checkpoint: no attention pool has the block that the state
		// belongs to.
		return
	}
	for p := t.arena.tokenPools; p < t.arena.selfPools; p++ {
		if b != protocol.NoBlock && t.arena.locations[p][b] != protocol.Nowhere {
			continue
		}
		// Lacks is from before HandOver, so the caller sees in which pools its page
		// was used.
		s.End.Lacks = append(s.End.Lacks, messages.PoolID(p))
		if p < len(s.HandOver) && s.HandOver[p] != messages.NoPage {
			t.attachCheckpoint(b, p, s.HandOver[p])
		}
	}
}

// blockOf finds the block of exactly the tokens [0, To) of an offer, perhaps a ghost;
// NoBlock if there is none.
func (t *storer) blockOf(s *protocol.StoreItem) protocol.BlockID {
	at := spot{t.arena.rootOf(s.Namespace, s.Cross), protocol.NoBlock}
	if at.root == none {
		return protocol.NoBlock
	}
	// As in start, a cursor saves the comparison of the whole prompt. One behind the
	// end of the offer is of no use here, since the search goes only downwards.
	if c := s.Cursor; t.arena.follows(c) && int(t.arena.blocks[c.Block].depth+1)*t.arena.tpb <= s.To {
		at = t.arena.behind(c.Block)
	}
	for first := int(t.arena.depthAt(at)) * t.arena.tpb; first < s.To; first += t.arena.tpb {
		at.block = t.arena.child(at, s.Tokens[first:min(first+t.arena.tpb, s.To)])
		if at.block == protocol.NoBlock {
			break
		}
	}
	return at.block
}
