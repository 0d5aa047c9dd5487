package oracle

import (
	"context"

	"github.com/kvactor/kvactor/messages"
)

// span is a half-open range of tokens.
type span struct{ from, to int }

// moment is when a sequence offers its blocks.
type moment int

const (
	atCommit moment = iota
	atRelease
)

// progress is a commit that was accepted.
type progress struct {
	sequence *sequence
	computed int
	use      use
	result   *messages.StepResult
	stays    []bool // by pool: what pins hold in host memory stays there
}

// Commit tells what is computed. All steps store, then all drop what left their
// windows, then all take the pages of their next chunk.
func (o *Oracle) Commit(_ context.Context, steps []messages.CommitStep) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	results := make([]messages.StepResult, len(steps))
	var accepted []progress
	seen := map[messages.SequenceID]bool{}
	for i, step := range steps {
		results[i].Sequence = step.Sequence
		s, err := o.running(step.Sequence)
		if err == nil && seen[step.Sequence] {
			err = bad("sequence %v is in this request twice", step.Sequence)
		}
		if err == nil {
			err = o.validCommit(s, step.Computed)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		seen[step.Sequence] = true
		results[i].NewPages = o.noPages()
		if step.Computed == s.computed {
			continue
		}
		if step.SeparateRequest {
			s.last = use{o.request, i}
		}
		accepted = append(accepted, progress{s, step.Computed, s.last, &results[i], nil})
	}
	o.advance(accepted)
	return results, nil
}

// validCommit refuses what goes backwards, past the tokens or the chunk, or off
// a block boundary before the prompt's end.
func (o *Oracle) validCommit(s *sequence, computed int) error {
	switch {
	case computed < s.computed:
		return bad("commit of %d tokens after %d", computed, s.computed)
	case computed > s.length():
		return bad("commit of %d tokens of %d", computed, s.length())
	case computed == s.computed || !s.prefilling():
		return nil
	case computed < s.prompt && computed%o.tpb != 0:
		return bad("commit of %d tokens, before the prompt's end and off a block boundary", computed)
	case s.chunk > 0 && computed > o.target(s):
		return bad("commit of %d tokens, past the chunk that ends at %d", computed, o.target(s))
	}
	return nil
}

func (o *Oracle) noPages() [][]messages.PageID {
	all := make([][]messages.PageID, len(o.pool))
	for i := range all {
		all[i] = []messages.PageID{}
	}
	return all
}

// advance does accepted commits: stores, drops, chunks.
func (o *Oracle) advance(accepted []progress) {
	o.keepReserves(accepted)
	for _, c := range accepted {
		o.store(c.sequence, span{c.sequence.computed / o.tpb * o.tpb, c.computed / o.tpb * o.tpb}, atCommit, c.stays)
	}
	for _, c := range accepted {
		o.makeCheckpoints(c)
	}
	chunked := map[*sequence]bool{}
	for _, c := range accepted {
		s := c.sequence
		chunked[s] = s.chunk > 0 && s.prefilling()
		s.computed = c.computed
		for _, p := range o.pool {
			for _, table := range s.tables[p.id] {
				for index := range table {
					if o.left(p, index, s.computed) {
						o.drop(p, table, index, c.use)
					}
				}
			}
		}
	}
	for _, c := range accepted {
		if !chunked[c.sequence] {
			continue
		}
		for _, p := range o.attentionPools() {
			o.takeChunk(p, c)
		}
	}
}

// keepReserves tells in which pools a chunked prefill's pages may not become
// those of a pin: no page is to spare for the blocks of its commit.
func (o *Oracle) keepReserves(accepted []progress) {
	for _, p := range o.pool {
		spared := 0
		for i := range accepted {
			c := &accepted[i]
			if c.stays == nil {
				c.stays = make([]bool, len(o.pool))
			}
			blocks := c.computed/o.tpb - c.sequence.computed/o.tpb
			if !c.sequence.coveredByReserve(p, c.sequence.reused) {
				continue
			}
			if c.stays[p.id] = o.available(p, nil)-spared < blocks; !c.stays[p.id] {
				spared += blocks
			}
		}
	}
}

// takeChunk takes the pages up to where the next commit may reach.
func (o *Oracle) takeChunk(p *pool, c progress) {
	s := c.sequence
	for len(s.tables[p.id][0]) < ceil(o.target(s), o.tpb) {
		pg := o.take(p, s.namespace.Salt)
		for beam := range s.tables[p.id] {
			s.tables[p.id][beam] = append(s.tables[p.id][beam], pg)
		}
		c.result.NewPages[p.id] = append(c.result.NewPages[p.id], numberOf(pg))
	}
}

// store offers the computed blocks of a span, which begins at a block boundary.
// At a release the span may end inside a block. In pools that are told, what a
// pin holds in host memory stays there.
func (o *Oracle) store(s *sequence, tokens span, when moment, stays []bool) {
	if s.noStore || !o.cfg.BlockReuse {
		return
	}
	runs := make([][]*block, len(o.pool))
	flush := func(p *pool) {
		o.emitStored(p, runs[p.id])
		runs[p.id] = nil
	}
	for first := tokens.from; first < tokens.to; first += o.tpb {
		end := min(first+o.tpb, tokens.to)
		if end < first+o.tpb && !o.cfg.PartialReuse {
			break
		}
		if s.width() > 1 && when == atCommit && end > s.prompt {
			break // holds generated tokens: stored at release
		}
		newly, back := o.offer(s, first/o.tpb, s.keys[0][:end], stays)
		for _, p := range o.pool {
			if newly[p.id] != nil {
				runs[p.id] = append(runs[p.id], newly[p.id])
				continue
			}
			flush(p)
			if back[p.id] != nil {
				o.emitTier(p, back[p.id], messages.Primary)
			}
		}
	}
	for _, p := range o.pool {
		flush(p)
	}
}

// offer stores one block in each pool that lacks it and answers, by pool, the
// block where it is new and where it is back from host memory.
func (o *Oracle) offer(s *sequence, index int, key []symbol, stays []bool) (newly, back []*block) {
	newly, back = make([]*block, len(o.pool)), make([]*block, len(o.pool))
	pages := make([]*page, len(o.pool))
	blank := false
	for _, p := range o.pool {
		// A page caches at most one block: one that caches something is not offered.
		if table := s.tables[p.id][0]; p.attends() && index < len(table) && table[index] != nil && table[index].block == nil {
			pages[p.id] = table[index]
			blank = true
		}
	}
	if !blank {
		return newly, back
	}
	b := o.find(s.namespace, key)
	if b == nil {
		b = o.create(s, index, key)
	} else {
		join(b, s.session)
		o.retain(b, s)
	}
	for _, p := range o.pool {
		pg, at := pages[p.id], b.at[p.id]
		switch {
		case pg == nil:
		case at == nil:
			b.at[p.id] = &spot{device: pg}
			pg.block = b
			o.storeTier.saveFirst(p, b)
			newly[p.id] = b
			o.touch(b)
		case at.device == nil && at.pins > 0 && stays != nil && stays[p.id]:
		case at.device == nil:
			at.device = pg
			o.keepCopy(at)
			pg.block = b
			back[p.id] = b
		}
	}
	return newly, back
}

// create makes a block that is stored for the first time: its timer starts.
func (o *Oracle) create(s *sequence, index int, key []symbol) *block {
	b := &block{
		namespace: s.namespace, key: append([]symbol(nil), key...), index: index,
		at: make([]*spot, len(o.pool)), session: s.session,
	}
	priority, duration, _ := retention(s, index*o.tpb)
	b.priority = priority
	o.startTimer(b, duration)
	s.settled[name(b.namespace, b.key)] = true
	o.blocks = append(o.blocks, b)
	return b
}
