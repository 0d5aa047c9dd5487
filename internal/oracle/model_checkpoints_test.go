package oracle

import "slices"

// checkpoints makes state pages that belong to stored blocks.
type checkpoints struct {
	*layout
	log        *eventLog
	tree       *tree
	references *references
	eviction   *eviction
	memory     *memory
	saver      *saver
}

// wants reports whether a commit that ends at position makes a checkpoint.
func (k *checkpoints) wants(s *sequence, position int) bool {
	if s.noStore || !k.recurrent() || !k.cfg.BlockReuse {
		return false
	}
	if position <= s.prompt {
		return slices.Contains(s.wanted, position)
	}
	return k.cfg.CheckpointInterval > 0 && position%k.cfg.CheckpointInterval == 0
}

// makeCheckpoints copies the working pages to the block that ends where the
// commit does, if it is stored and lacks a checkpoint. It never fails: where no
// page is to be had none is made. Without attention pools the block need not be stored.
func (k *checkpoints) makeCheckpoints(c progress) {
	if !k.wants(c.sequence, c.computed) {
		return
	}
	b := k.endOf(c.sequence, c.computed)
	if b == nil {
		return
	}
	stored := k.tree.find(b.namespace, b.key) != nil
	pages := map[*pool]*page{}
	for _, p := range k.statePools() {
		if b.at[p.id] != nil {
			continue
		}
		pg := k.checkpointPage(p, b)
		if pg == nil {
			p.counters.CheckpointsSkipped++
			continue
		}
		k.references.guarded[pg] = true // until the request is over
		pages[p] = pg
	}
	if k.statesAlone() && (stored || len(pages) > 0) {
		k.tree.offerState(b, c.sequence)
	}
	for _, p := range k.statePools() {
		if pg := pages[p]; pg != nil {
			k.checkpoint(p, b, pg, c.use)
		}
	}
}

// endOf is the block that ends the first tokens of a sequence; without attention pools it may be
// one that is not stored yet. Nil: there is none.
func (k *checkpoints) endOf(s *sequence, tokens int) *block {
	key := s.keys[0][:tokens]
	b := k.tree.find(s.namespace, key)
	if b == nil && k.statesAlone() && (tokens%k.tpb == 0 || k.cfg.PartialReuse) {
		b = k.tree.newBlock(s, (tokens-1)/k.tpb, key)
	}
	return b
}

// checkpointPage takes a page for the checkpoint of a block: a free one, or one
// of contents of at most the block's priority; nil: there is none.
func (k *checkpoints) checkpointPage(p *pool, b *block) *page {
	cheap := func(pg *page) bool { return pg.block == nil || pg.block.priority <= b.priority }
	if !slices.ContainsFunc(p.device, func(pg *page) bool {
		return pg.block == nil && !k.references.used(p, pg) && !k.references.guarded[pg]
	}) {
		victim := k.eviction.deviceVictim(p, b.namespace.Salt, cheap)
		if victim == nil {
			return nil
		}
		k.memory.evict(p, victim)
	}
	return k.memory.take(p, b.namespace.Salt)
}

// checkpoint makes a page the checkpoint of a block.
func (k *checkpoints) checkpoint(p *pool, b *block, pg *page, u use) {
	p.counters.Checkpoints++
	b.at[p.id] = &spot{device: pg}
	pg.block = b
	k.saver.saveFirst(p, b)
	k.memory.spend(b.at[p.id], u)
	k.log.stored(p, []*block{b})
}

// handOver makes the working pages of a sequence that ends the checkpoints of the
// block of exactly its computed tokens, where that is stored and has none.
func (k *checkpoints) handOver(s *sequence) {
	if s.noStore || !k.cfg.BlockReuse || s.computed == 0 {
		return
	}
	b := k.endOf(s, s.computed)
	if b == nil {
		return
	}
	if k.statesAlone() {
		k.tree.offerState(b, s)
	}
	for _, p := range k.statePools() {
		if b.at[p.id] == nil {
			k.checkpoint(p, b, s.tables[p.id][0][0], s.last) // dropping it leaves the use of the release
		}
	}
}
