package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/messages"
)

// poolPlan is what an admission needs in one pool. The first group are operations
// of the pool, −1: none.
//
// In an attention pool reused ≥ whole, because blocks that have left the window are matched and
// need no page. When the tables are filled, whole = claimed + onboarded + len(shared).
type poolPlan struct {
	inspect  int // asks who holds the source
	copyPage int // takes the page for a partial copy
	onboard  int // takes pages for blocks in host memory
	fresh    int // takes pages for what must be computed

	source [1]messages.PageID // the source of partial reuse, if on the device
	copied [1]messages.PageID // the page for its copy

	reused    int               // blocks of the match, those outside of the window included
	whole     int               // blocks reused whole = claimed + those in host memory
	claimed   int               // of these, on the device
	onboarded int               // of these, in host memory and brought in by this prompt
	shared    []messages.PageID // of these, brought in by an earlier prompt of the batch
	blocks    int               // of the table after the admission
	reserve   int               // pages reserved for later chunks
}

// noPlan is a plan without operations.
var noPlan = poolPlan{inspect: -1, copyPage: -1, onboard: -1, fresh: -1}

// pageClaims is what the prompts of a batch that have been decided about leave less
// for those after them. Claims on the device are not among them: the pools have counted those
// when they answered.
type pageClaims struct {
	reserved []int // by pool: pages of admitted prompts that have not been taken yet
	copies   []int // by pool: of these, pages for partial copies
	// onboarders says which prompt brings a block from host memory. The
	// first that wants it does; the others share its page.
	onboarders map[poolBlock]int
}

func newPageClaims(pools int) pageClaims {
	return pageClaims{reserved: make([]int, pools), copies: make([]int, pools),
		onboarders: map[poolBlock]int{}}
}

func (c *pageClaims) clear() {
	clear(c.reserved)
	clear(c.copies)
	clear(c.onboarders)
}

// plan says what prompt i needs in each pool.
func (b *promptBatch) plan(i int) {
	it := &b.items[i]
	s := it.sequence
	// The counts of the sequence first: what is covered by a reserve, and how far the first
	// chunk goes, follow from them.
	if it.self >= 0 && b.imported == nil {
		m := &b.match.Items[it.self]
		s.Plan(sequence.BlockIndex(m.Blocks), sequence.TokenCount(m.Matched))
	}
	for p := it.pools.first; p < it.pools.end; p++ {
		pl, m := &it.plans[p], b.matchFor(i, p)
		// Planned from the match each time: a prompt that was matched once more has another one.
		pl.reused, pl.blocks, pl.reserve = m.Blocks, m.Blocks, 0
		if b.states.has(p) {
			b.planState(i, p)
			continue
		}
		// A prompt gets pages for all its tokens, but for those that it reuses.
		if !b.storedOnly && !it.stored {
			pl.blocks = b.config.blocks(len(m.Tokens))
		}
		pl.onboarded = b.countOnboards(i, p)
		// A prompt in chunks takes pages up to the end of its first chunk; the reserve stands
		// for these and for all that come later.
		if s.Covered(p) {
			pl.blocks = min(pl.blocks, b.config.blocks(int(s.ChunkEnd())))
			pl.reserve = int(s.ChunkReserve(p, s.ReusedBlocks()))
		}
	}
}

// planState says what prompt i needs in a state pool: the working page, or, of a
// prefetch, the checkpoint. It does not follow from the number of blocks: one page has the
// state after all tokens before it.
func (b *promptBatch) planState(i, p int) {
	pl := &b.items[i].plans[p]
	pl.reused, pl.blocks = 0, 1
	if b.storedOnly {
		pl.reused, pl.blocks = pl.whole, pl.whole
		pl.onboarded = b.countOnboards(i, p)
	}
}

// countOnboards counts the blocks that prompt i brings from host memory: those that
// no earlier prompt brings. Each stands for one page to take, so a block that several prompts
// want counts for the first of them only.
func (b *promptBatch) countOnboards(i, p int) int {
	if b.imported != nil {
		return b.missing(p)
	}
	n := 0
	_, locations := b.found(i, p)
	for k, at := range locations {
		if at.InHost() && b.onboarder(i, p, k) == nil {
			n++
		}
	}
	return n
}

// onboarder is the earlier prompt that brings block k of prompt i from host memory;
// nil if there is none.
func (b *promptBatch) onboarder(i, p, k int) *prompt {
	// The prompt that brings a block in is not earlier than itself.
	blocks, _ := b.found(i, p)
	j, ok := b.claims.onboarders[poolBlock{messages.PoolID(p), blocks[k]}]
	if !ok || j >= i {
		return nil
	}
	return &b.items[j]
}

// noteOnboards notes what an admitted prompt brings from host memory.
func (b *promptBatch) noteOnboards(i, p int) {
	blocks, locations := b.found(i, p)
	for k, at := range locations {
		if at.InHost() && b.onboarder(i, p, k) == nil {
			b.claims.onboarders[poolBlock{messages.PoolID(p), blocks[k]}] = i
		}
	}
}

// need is the pages that a planned prompt takes in a pool, its reserve included. It stands
// against what is available, from which the claims are taken off already; so pages that the
// prompt has claimed are not in it.
func (b *promptBatch) need(it *prompt, p int) int {
	pl, s := &it.plans[p], it.sequence
	if s.Covered(p) {
		return pl.onboarded + pl.reserve
	}
	// Blocks of the match outside of the window need no page; those claimed on the device
	// have theirs.
	// A partial copy takes one of these pages: it is the first block behind the match.
	need := pl.onboarded + pl.blocks - pl.reused
	if it.reuse == messages.PartialTakeover && pl.inspect >= 0 && p < b.self.end {
		need-- // the source itself is the page
	}
	return need
}

// checkCapacity compares what a planned prompt needs with what is available, pool
// by pool. The refusal names the first pool that lacks pages.
func (b *promptBatch) checkCapacity(it *prompt) *messages.Refusal {
	for p := it.pools.first; p < it.pools.end; p++ {
		// The first pool that lacks pages is named, in the order of pools, so that a refusal is the
		// same in every run.
		// available has the claims of all prompts of the batch taken off already, those behind this
		// one included: they were made before any prompt was decided about.
		available := b.left(p)
		// Without its partial block a prompt may claim pages that earlier copies
		// count on.
		crowded := it.reuse == messages.PartialNone && p < b.self.end && b.copyRoom(p) < 0
		need := b.need(it, p)
		if crowded || need > max(0, available) {
			return b.pressure.outOfPages(p, need, max(0, available), need+it.plans[p].claimed)
		}
		// What the prompt claims, a prompt in chunks has reserved. A prefetch gives
		// its claims back: where it needs no page, it lacks none.
		if available < 0 && !b.storedOnly {
			return b.pressure.lack(p, -available, 0, 0)
		}
	}
	return nil
}

// left is the pages of a pool that the prompts admitted before leave. It is below 0 when the batch
// has claimed what a prompt in chunks has reserved.
func (b *promptBatch) left(p int) int {
	return b.counts.available(p) - b.claims.reserved[p] - b.takeovers(p)
}

// copyRoom is the pages that further partial copies may be written to: neither a
// source nor reserved for an earlier copy. It is below 0 when a prompt has claimed pages that
// copies before it count on.
func (b *promptBatch) copyRoom(p int) int {
	return b.counts.evictable(p) - b.sources[p].cached - b.claims.copies[p]
}

// sourceUnusable tells whether a prompt is to copy a part of its source and no page but a source is
// there for the copy. Such a prompt is matched again without its source before it is decided about.
func (b *promptBatch) sourceUnusable(it *prompt) bool {
	if it.reuse != messages.PartialCopy {
		return false
	}
	// A copy needs a page in every pool. The source may be evicted only after it was read,
	// so it is no such page.
	for p := range b.self.end {
		if b.copyRoom(p) < 1 {
			return true
		}
	}
	return false
}

// reserve keeps the pages of an admitted prompt from those after it. Behind it the prompt can
// no longer fail for want of pages.
func (b *promptBatch) reserve(i int) {
	it := &b.items[i]
	for p := it.pools.first; p < it.pools.end; p++ {
		b.noteOnboards(i, p)
		b.claims.reserved[p] += b.need(it, p)
		if b.copiesInto(i, p) {
			b.claims.copies[p]++
		}
	}
}

// refuse notes the refusal of a prompt and takes its claims back; the caller sends.
func (b *promptBatch) refuse(it *prompt, refusal *messages.Refusal) {
	// The claims of the prompts behind it stay: they were made on the same state.
	it.refused = refusal
	b.out.pools.reset()
	b.withdraw(it, it.pools)
}

// claimedPages is the pages that the batch has claimed in a pool, each once.
func (b *promptBatch) claimedPages(p int) int {
	// Prompts that begin alike claim the same pages.
	// Entered once, so that entries without a page need no case of their own; it is taken off
	// the count at the end.
	pages := map[messages.PageID]struct{}{messages.NoPage: {}}
	for i := range b.open() {
		for _, page := range b.items[i].sequence.Table(p) {
			pages[page] = struct{}{}
		}
	}
	return len(pages) - 1
}

// fitsAlone tells whether a planned prompt would fit if no one else held a page. Sequences that
// run will end and give their pages back. The other prompts of the batch will not before the
// batch is answered, so their claims count.
func (b *promptBatch) fitsAlone(it *prompt) bool {
	for p := it.pools.first; p < it.pools.end; p++ {
		// The claims of the prompts behind it are made before it takes a page.
		if b.need(it, p)+b.claimedPages(p)+b.takeovers(p) > b.counts.device[p].Total {
			return false
		}
	}
	return true
}
