package oracle

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// offering stores in the tree what sequences have computed.
type offering struct {
	*layout
	log    *eventLog
	tree   *tree
	memory *memory
	saver  *saver
}

// span is a half-open range of tokens.
type span struct{ from, to int }

// moment is when a sequence offers its blocks.
type moment int

const (
	atCommit moment = iota
	atRelease
)

// store offers the computed blocks of a span, which begins at a block boundary.
// At a release the span may end inside a block. In pools that are told, what a
// pin holds in host memory stays there.
func (f *offering) store(s *sequence, tokens span, when moment, stays []bool) {
	if s.noStore || !f.cfg.BlockReuse {
		return
	}
	runs := make([][]*block, len(f.pools))
	flush := func(p *pool) {
		f.log.stored(p, runs[p.id])
		runs[p.id] = nil
	}
	for first := tokens.from; first < tokens.to; first += f.tpb {
		end := min(first+f.tpb, tokens.to)
		if end < first+f.tpb && !f.cfg.PartialReuse {
			break
		}
		if s.width() > 1 && when == atCommit && end > s.prompt {
			break // holds generated tokens: stored at release
		}
		newly, back := f.offer(s, first/f.tpb, s.keys[0][:end], stays)
		for _, p := range f.pools {
			if newly[p.id] != nil {
				runs[p.id] = append(runs[p.id], newly[p.id])
				continue
			}
			flush(p)
			if back[p.id] != nil {
				f.log.tierChanged(p, back[p.id], messages.Primary)
			}
		}
	}
	for _, p := range f.pools {
		flush(p)
	}
}

// offer stores one block in each pool that lacks it and answers, by pool, the
// block where it is new and where it is back from host memory.
func (f *offering) offer(
	s *sequence, index int, key []symbol, stays []bool,
) (newly, back []*block) {
	newly, back = make([]*block, len(f.pools)), make([]*block, len(f.pools))
	pages := make([]*page, len(f.pools))
	blank := false
	for _, p := range f.pools {
		// A page caches at most one block: one that caches something is not offered.
		if table := s.tables[p.id][0]; p.attends() && index < len(table) && table[index] != nil &&
			table[index].block == nil {
			pages[p.id] = table[index]
			blank = true
		}
	}
	if !blank {
		return newly, back
	}
	b := f.tree.find(s.namespace, key)
	if b == nil {
		b = f.tree.create(s, index, key)
	} else {
		mergeSession(b, s.session)
		f.tree.retain(b, s)
	}
	for _, p := range f.pools {
		pg, at := pages[p.id], b.at[p.id]
		switch {
		case pg == nil:
		case at == nil:
			b.at[p.id] = &spot{device: pg}
			pg.block = b
			f.saver.saveFirst(p, b)
			newly[p.id] = b
			f.tree.touch(b)
		case at.device == nil && at.pins > 0 && stays != nil && stays[p.id]:
		case at.device == nil:
			at.device = pg
			f.memory.keepCopy(at)
			pg.block = b
			back[p.id] = b
		}
	}
	return newly, back
}

// retention is what the sequence's request says of the block that begins at
// token first, and whether it covers it.
func retention(s *sequence, first int) (messages.Priority, time.Duration, bool) {
	r := s.retention
	if r == nil {
		return messages.DefaultPriority, 0, false
	}
	if first >= s.prompt {
		if r.Decode == nil {
			return messages.DefaultPriority, 0, false
		}
		return r.Decode.Priority, r.Decode.Duration, true
	}
	for _, x := range r.Ranges {
		if x.Start <= first && (first < x.End || x.End == messages.EndOfPrompt) {
			return x.Priority, x.Duration, true
		}
	}
	return messages.DefaultPriority, 0, false
}
