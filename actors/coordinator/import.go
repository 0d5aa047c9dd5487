package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// BeginImport: a sequence gets pages for tokens whose contents come from another engine. Its stages
// are those of an admission of one prompt.
//
// Pages that the device has are shared, whether a match would reach them or not: what the
// tree knows under these tokens has the contents that come. Pages in host memory are not
// brought in, because their contents come anyway. The pages that are taken are written by
// later requests, and a commit stores them; until then nothing but this sequence knows them.
// So whatever goes wrong later, the release of the sequence leaves no trace of it but what was
// evicted for its pages.

// startImport makes the sequence. The tree is asked for its blocks, also with block reuse off: it
// writes symbols into the tokens of a prompt with items.
//
// The values are checked once more although the shell has checked them on its caller's
// goroutine: from here on only a lack of pages can refuse the import, and what follows
// relies on the lengths.
func (a *admission) startImport(r *protocol.BeginImport) {
	r.Sequence, r.Missing, r.Err = 0, nil, nil
	b, p := a.batch, &r.Prompt
	if r.OwnWeights {
		p.Namespace.Weights = a.config.identity
	}
	err := a.config.ValidateImport(r)
	if err == nil && p.Namespace.Weights != a.config.identity {
		err = refusals.New(messages.ErrNotSupported,
			"the sequence was computed by weights %q, the engine has %q", p.Namespace.Weights,
			a.config.identity)
	}
	if err != nil {
		r.Err = err
		return
	}
	b.imported = r
	b.addStored(p, r.Computed).sequence.Prompt = sequence.TokenCount(r.Length)
	for i := range b.match.Items {
		m := &b.match.Items[i]
		m.Partial, m.InTree = false, &protocol.BlocksInTree{}
	}
}

// holds tells whether an imported sequence has a page of a block in a pool of blocks: the window
// has not passed it.
func (b *promptBatch) holds(p, block int) bool {
	return b.cross.has(p) || carries(&b.config.Pools[p], block, b.imported.Computed)
}

// locateImport makes what the tree knows of the tokens a match of all of them: the pages that are
// shared, and none for all others.
//
// Only whole computed blocks are shared. The partial block at the end is written to by the next
// step, so it gets a page of its own. The encoder's input is computed, and its last block is
// padded: all of it is whole. The states come with the stream.
func (b *promptBatch) locateImport() {
	for i := range b.match.Items {
		m := &b.match.Items[i]
		n := b.config.blocks(len(m.Tokens))
		pools, whole := b.self, b.imported.Computed/b.config.TokensPerBlock
		if m.Cross {
			pools, whole = b.cross, n
		}
		m.Blocks, m.IDs, m.Pages = n, slices.Repeat([]protocol.BlockID{protocol.NoBlock}, n),
			make([][]protocol.Location, len(b.config.Pools))
		m.Checkpoint, m.Source.Block, m.AttentionSource.Block = protocol.NoBlock, protocol.NoBlock,
			protocol.NoBlock
		for p := pools.first; p < pools.end; p++ {
			m.Pages[p] = slices.Repeat([]protocol.Location{protocol.Nowhere}, n)
			// The answer ends before the first block that the tree does not know.
			for block := range min(whole, len(m.InTree.Blocks)) {
				at := m.InTree.Pages[p][block]
				if _, tier, ok := at.Page(); ok && tier == messages.Primary && b.holds(p, block) {
					m.Pages[p][block] = at
				}
			}
		}
	}
}

// missing counts the pages of a pool that an import takes.
func (b *promptBatch) missing(p int) (n int) {
	for block, at := range b.matchFor(0, p).Pages[p] {
		if at == protocol.Nowhere && b.holds(p, block) {
			n++
		}
	}
	return n
}

// fillImport gives the blocks that are not shared their pages.
func (b *promptBatch) fillImport(p int, pages []messages.PageID) {
	table, next := b.items[0].sequence.Table(p), 0
	for block := range table {
		if table[block] == messages.NoPage && b.holds(p, block) {
			table[block] = pages[next]
			next++
		}
	}
}

// endImport completes the sequence, or ends that of an import that is refused.
//
// Missing answers, for each carried page, whether its contents have to be written: it is
// in the order of CarriedPages, which both ends of the stream compute from the geometry
// alone, so the stream needs no list of pages.
func (a *admission) endImport() {
	it, r := &a.batch.items[0], a.batch.imported
	s := it.sequence
	if it.refused != nil {
		r.Err = it.refused
		a.out.end(s)
		a.kernel.reply()
		return
	}
	if r.NoStore {
		s.NoStore = true
	}
	if r.InputNoStore {
		s.Input.NoStore = true
	}
	shared := 0
	for _, at := range a.config.CarriedPages(r.Computed, len(r.Prompt.Encoder)) {
		p := int(at.Pool)
		missing := a.states.has(p) || a.batch.matchFor(0, p).Pages[p][at.Block] == protocol.Nowhere
		// Blocks before shared may be held by others; a step that writes there asks the
		// pools first. One shared pool suffices to make a block shared. No step writes to the
		// encoder's input.
		if !missing && !a.cross.has(p) {
			shared = max(shared, at.Block+1)
		}
		r.Missing = append(r.Missing, missing)
	}
	sequence.CompleteImport(s, sequence.TokenCount(r.Computed), sequence.BlockIndex(shared))
	r.Sequence = s.ID()
	a.kernel.reply()
}

// ValidateImport checks the values of an import alone. It reads nothing of the
// configuration that changes, so callers may use it outside of the coordinator's goroutine.
func (c *Config) ValidateImport(r *protocol.BeginImport) error {
	tokens, p := r.Prompt.Tokens, r.Prompt
	switch {
	case len(tokens) > c.MaxSeqLen:
		return refusals.New(messages.ErrTooLong, "a sequence of %d tokens is over max_seq_len %d",
			len(tokens), c.MaxSeqLen)
	case r.Length < 1 || r.Length > len(tokens):
		return refusals.New(messages.ErrBadRequest, "a prompt of %d of %d tokens", r.Length, len(tokens))
	// Pages of a prompt that is computed in part would need the reserve of its chunks.
	case r.Computed < r.Length || r.Computed > len(tokens):
		return refusals.New(messages.ErrBadRequest,
			"%d tokens are computed, the prompt has %d and the sequence %d", r.Computed, r.Length,
			len(tokens))
	}
	p.Tokens = tokens[:r.Length]
	if err := c.Validate(&p); err != nil {
		return err
	}
	if err := c.validateEncoderLength(len(p.Encoder)); err != nil {
		return err
	}
	if i := firstNegative(tokens[r.Length:]); i >= 0 {
		return refusals.New(messages.ErrBadRequest, "token %d at position %d is not in 0 … 2³¹−1",
			tokens[r.Length+i], r.Length+i)
	}
	return nil
}
