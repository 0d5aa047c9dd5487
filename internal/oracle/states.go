package oracle

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// recurrent reports whether the model has recurrent layers.
func (o *Oracle) recurrent() bool { return len(o.statePools()) > 0 }

func (o *Oracle) attentionPools() []*pool {
	return slices.DeleteFunc(slices.Clone(o.pool), func(p *pool) bool { return p.State })
}

func (o *Oracle) statePools() []*pool {
	return slices.DeleteFunc(slices.Clone(o.pool), func(p *pool) bool { return !p.State })
}

// checkpointed reports whether a stored block ends at position whose checkpoint
// every state pool has in some tier.
func (o *Oracle) checkpointed(q prompt, position int) bool {
	return !o.recurrent() || held(o.find(q.namespace, q.key[:position]), o.statePools())
}

// attentionMatch is what the attention pools alone would give the prompt. A source
// that could not be taken over does not count where nothing is copied.
func (o *Oracle) attentionMatch(q prompt) int {
	if !o.recurrent() {
		return 0
	}
	m := o.matchPartial(q, withoutStates)
	if b := m.source; b != nil && !o.cfg.CopyOnPartialReuse && (o.busy(b) || o.behind(b)) {
		m = o.matchWhole(q, withoutStates)
	}
	return m.tokens
}

// stateBlock is the block whose checkpoint an admission copies; nil: none.
func (o *Oracle) stateBlock(pl *plan) *block {
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
func (o *Oracle) readFrom(pl *plan, p *pool) *spot {
	b := pl.match.source
	if !p.attends() {
		b = o.stateBlock(pl)
	}
	if b == nil {
		return nil
	}
	return b.at[p.id]
}

// copiesInto reports whether an admission takes a page in a pool and copies into it.
func (o *Oracle) copiesInto(pl *plan, p *pool) bool {
	if p.attends() {
		return pl.partial == messages.PartialCopy
	}
	return o.stateBlock(pl) != nil
}

// copiedBlock is where in its table an admission puts the page that it copies into.
func (o *Oracle) copiedBlock(pl *plan, p *pool) int {
	if p.attends() {
		return o.wholeBlocks(pl)
	}
	return 0
}

// claimState makes the table of a state pool, empty yet, and guards the
// checkpoint that will be read.
func (o *Oracle) claimState(pl *plan, s *sequence, p *pool) {
	s.tables = append(s.tables, [][]*page{make([]*page, 1)})
	if from := o.readFrom(pl, p); from != nil && from.device != nil {
		o.guarded[from.device] = true
	} else if from != nil {
		o.guarded[from.host] = true
	}
}

// stateReuse is what an admission reuses in a state pool, which it counts.
func (o *Oracle) stateReuse(pl *plan, p *pool) messages.PoolReuse {
	if o.stateBlock(pl) == nil {
		return messages.PoolReuse{PartialReuse: messages.PartialNone}
	}
	p.counters.ReusedPartial++
	return messages.PoolReuse{Partial: 1, PartialReuse: messages.PartialCopy}
}

// wantedCheckpoints are the positions of the prompt at which a commit that ends
// there makes a checkpoint: the branch, the last block boundary, and every
// multiple of the interval.
func (o *Oracle) wantedCheckpoints(pl *plan) []int {
	if !o.recurrent() || !o.cfg.BlockReuse {
		return nil
	}
	reused, length := pl.match.tokens, len(pl.prompt.key)
	var wanted []int
	want := func(position int) {
		if position > reused && position < length && !slices.Contains(wanted, position) {
			wanted = append(wanted, position)
		}
	}
	want(pl.attention / o.tpb * o.tpb)
	want((length - 1) / o.tpb * o.tpb)
	if n := o.cfg.CheckpointInterval; n > 0 {
		for position := n; position < length; position += n {
			want(position)
		}
	}
	slices.Sort(wanted)
	return wanted
}

// wants reports whether a commit that ends at position makes a checkpoint.
func (o *Oracle) wants(s *sequence, position int) bool {
	if s.noStore || !o.recurrent() || !o.cfg.BlockReuse {
		return false
	}
	if position <= s.prompt {
		return slices.Contains(s.wanted, position)
	}
	return o.cfg.CheckpointInterval > 0 && position%o.cfg.CheckpointInterval == 0
}

// makeCheckpoints copies the working pages to the block that ends where the
// commit does, if it is stored and lacks a checkpoint. It never fails: where no
// page is to be had none is made.
func (o *Oracle) makeCheckpoints(c progress) {
	if !o.wants(c.sequence, c.computed) {
		return
	}
	b := o.find(c.sequence.namespace, c.sequence.keys[0][:c.computed])
	if b == nil {
		return
	}
	for _, p := range o.statePools() {
		if b.at[p.id] != nil {
			continue
		}
		pg := o.checkpointPage(p, b)
		if pg == nil {
			p.counters.CheckpointsSkipped++
			continue
		}
		o.guarded[pg] = true // until the request is over
		o.checkpoint(p, b, pg, c.use)
	}
}

// checkpointPage takes a page for the checkpoint of a block: a free one, or one
// of contents of at most the block's priority; nil: there is none.
func (o *Oracle) checkpointPage(p *pool, b *block) *page {
	cheap := func(pg *page) bool { return pg.block == nil || pg.block.priority <= b.priority }
	if !slices.ContainsFunc(p.device, func(pg *page) bool { return pg.block == nil && !o.used(p, pg) && !o.guarded[pg] }) {
		victim := o.deviceVictim(p, b.namespace.Salt, cheap)
		if victim == nil {
			return nil
		}
		o.evict(p, victim)
	}
	return o.take(p, b.namespace.Salt)
}

// checkpoint makes a page the checkpoint of a block.
func (o *Oracle) checkpoint(p *pool, b *block, pg *page, u use) {
	p.counters.Checkpoints++
	b.at[p.id] = &spot{device: pg}
	pg.block = b
	o.storeTier.saveFirst(p, b)
	o.spend(b.at[p.id], u)
	o.emitStored(p, []*block{b})
}

// handOver makes the working pages of a sequence that ends the checkpoints of the
// block of exactly its computed tokens, where that is stored and has none.
func (o *Oracle) handOver(s *sequence) {
	if s.noStore || !o.cfg.BlockReuse || s.computed == 0 {
		return
	}
	b := o.find(s.namespace, s.keys[0][:s.computed])
	if b == nil {
		return
	}
	for _, p := range o.statePools() {
		if b.at[p.id] == nil {
			o.checkpoint(p, b, s.tables[p.id][0][0], s.last) // dropping it leaves the use of the release
		}
	}
}
