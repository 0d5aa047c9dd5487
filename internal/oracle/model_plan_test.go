package oracle

import "github.com/kvactor/kvactor/messages"

// plan is what an admission will do, found out without changing anything.
type plan struct {
	request messages.AdmitRequest
	err     error

	prompt prompt
	match  match
	wanted match // before it was known whether there are pages for a copy
	// attention is what the attention pools alone would have given this prompt,
	// were it alone; 0 without state pools.
	attention  int
	reach      int
	missReason messages.MissReason
	partial    messages.PartialReuse

	lead []*block // by block: those reused whole; nil: no pool has it and none needs it
	// claims are, by pool and block, the spots claimed whole; nil: not claimed.
	claims [][]*spot
	// onboards are the spots among them that this plan brings to the device.
	onboards [][]*spot
	// fromHost tells, by pool, whether the source was in host memory only.
	fromHost []bool
}

// wholeBlocks is the number of blocks reused whole.
func (pl *plan) wholeBlocks() int { return len(pl.lead) }

// stateBlock is the block whose checkpoint an admission copies; nil: none.
func (pl *plan) stateBlock() *block {
	switch {
	case pl.match.tokens == 0:
		return nil
	case pl.match.source != nil:
		return pl.match.source
	default:
		return pl.lead[len(pl.lead)-1]
	}
}

// readFrom is what an admission copies from or takes over in a pool: the source
// of its partial reuse, or the checkpoint at its end; nil: nothing.
func (pl *plan) readFrom(p *pool) *spot {
	b := pl.match.source
	if !p.attends() {
		b = pl.stateBlock()
	}
	if b == nil {
		return nil
	}
	return b.at[p.id]
}

// copiesInto reports whether an admission takes a page in a pool and copies into it.
func (pl *plan) copiesInto(p *pool) bool {
	if p.attends() {
		return pl.partial == messages.PartialCopy
	}
	return pl.stateBlock() != nil
}

// copiedBlock is where in its table an admission puts the page that it copies into.
func (pl *plan) copiedBlock(p *pool) int {
	if p.attends() {
		return pl.wholeBlocks()
	}
	return 0
}

// reserves reports whether the plan is a chunked prefill with a reserve in p.
func (pl *plan) reserves(p *pool) bool { return pl.request.ChunkTokens > 0 && p.limited() }
