package oracle

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// layout is what never changes: the configuration, and the pools with their pages. It
// answers what follows from them alone, such as which blocks a position needs.
type layout struct {
	cfg   Config
	tpb   int     // tokens per block
	pools []*pool // by PoolID
}

// pool is the memory of one pool: all its pages in a list for each tier.
type pool struct {
	PoolConfig
	id       int
	device   []*page
	host     []*page
	counters inspect.PoolCounters
}

// page is a piece of memory. Who holds it is found by looking at everybody.
type page struct {
	number int
	tier   messages.Tier
	block  *block // the block that it caches; nil: none
	salt   string // of the sequence that took it last, on the device
}

// newLayout makes the pools with empty pages.
func newLayout(cfg Config) *layout {
	l := &layout{cfg: cfg, tpb: cfg.TokensPerBlock}
	for i, pc := range cfg.Pools {
		p := &pool{PoolConfig: pc, id: i}
		for n := range pc.Primary {
			p.device = append(p.device, &page{number: n, tier: messages.Primary})
		}
		for n := range pc.Secondary {
			p.host = append(p.host, &page{number: n, tier: messages.Secondary})
		}
		l.pools = append(l.pools, p)
	}
	if l.statesAlone() {
		l.cfg.CopyOnPartialReuse = true // a state is copied in any case
	}
	return l
}

// kind is what the pages hold, by the engine's names.
func (p *pool) kind() string {
	if p.State {
		return "state"
	}
	return "attention"
}

// limited reports whether the pool has a window.
func (p *pool) limited() bool { return p.Window > 0 }

// attends reports whether pages hold keys and values.
func (p *pool) attends() bool { return !p.State }

// whole reports whether a block is stored whole: the key of one stored in part ends inside a block.
func (l *layout) whole(b *block) bool { return len(b.key)%l.tpb == 0 }

func (l *layout) noPages() [][]messages.PageID {
	all := make([][]messages.PageID, len(l.pools))
	for i := range all {
		all[i] = []messages.PageID{}
	}
	return all
}

// sinkBlocks is the number of leading blocks that never leave the window.
func (l *layout) sinkBlocks(p *pool) int {
	if !p.limited() {
		return 0
	}
	return ceil(p.Sink, l.tpb)
}

// needs reports whether the token at position attends, in pool p, to a token of
// block index that lies before position.
func (l *layout) needs(p *pool, index, position int) bool {
	first, end := index*l.tpb, (index+1)*l.tpb
	if first >= position || p.State {
		return false
	}
	if !p.limited() || index < l.sinkBlocks(p) {
		return true
	}
	return end-1 >= position-p.Window+1
}

// left reports whether block index has left the window of a sequence with so many
// computed tokens: its last token lies before computed−w+1 and after the sinks.
func (l *layout) left(p *pool, index, computed int) bool {
	if !p.limited() || index < l.sinkBlocks(p) {
		return false
	}
	return (index+1)*l.tpb-1 < computed-p.Window+1
}

// target is how far the next commit may reach: the last block boundary within
// computed + chunk, never past the prompt.
func (l *layout) target(s *sequence) int {
	from := s.computed / l.tpb * l.tpb
	if s.chunk == 0 || s.chunk >= s.prompt-from {
		return s.prompt
	}
	return from + s.chunk
}

// reserve is what a chunked prefill of so many blocks not reused whole reserves
// in a limited pool.
func (l *layout) reserve(p *pool, chunk, blocks int) int {
	return min(blocks, ceil(p.Window-1, l.tpb)+chunk/l.tpb+l.sinkBlocks(p))
}

// statesAlone reports whether no pool holds tokens.
func (l *layout) statesAlone() bool { return len(l.attentionPools()) == 0 }

// recurrent reports whether the model has recurrent layers.
func (l *layout) recurrent() bool { return len(l.statePools()) > 0 }

func (l *layout) attentionPools() []*pool {
	return slices.DeleteFunc(slices.Clone(l.pools), func(p *pool) bool { return p.State })
}

func (l *layout) statePools() []*pool {
	return slices.DeleteFunc(slices.Clone(l.pools), func(p *pool) bool { return !p.State })
}

func ceil(a, b int) int { return (a + b - 1) / b }
