package pool

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// oraclePage and oracle are the pool as one would draw it on a whiteboard: facts
// on every page, a stack of free pages, and a full search for every victim.
type oraclePage struct {
	references, shelters, pins int
	block                      messages.BlockID
	depth                      int32
	priority                   messages.Priority
	use                        messages.Use
}

type oracle struct {
	pages []oraclePage
	free  []messages.PageID // the last is taken first
	hand  int               // the page at which a look at held ones goes on
}

func newOracle(pages int) *oracle {
	o := &oracle{pages: make([]oraclePage, pages)}
	for i := range pages {
		o.pages[i].block = messages.NoBlock
		o.free = append(o.free, messages.PageID(pages-1-i))
	}
	return o
}

func (g oraclePage) idle() bool   { return g.references == 0 && g.pins == 0 }
func (g oraclePage) cached() bool { return g.idle() && g.block != messages.NoBlock }

// held is the comment of PoolPages.Held: sequences and pins, but for what only a
// chunked prefill holds.
func (g oraclePage) held() bool {
	if g.pins > 0 {
		return true
	}
	return g.references > 0 && !(g.references == 1 && g.shelters == 1)
}

func (o *oracle) counts() messages.PoolPages {
	c := messages.PoolPages{PageCounts: messages.PageCounts{Total: len(o.pages), Free: len(o.free)}}
	for _, g := range o.pages {
		if g.cached() {
			c.Cached++
		}
		if !g.idle() {
			c.Used++
		}
		if g.held() {
			c.Held++
		}
	}
	return c
}

// cachedInOrder lists all cached pages, the next victim first.
func (o *oracle) cachedInOrder() []messages.PageID {
	var ids []messages.PageID
	for i, g := range o.pages {
		if g.cached() {
			ids = append(ids, messages.PageID(i))
		}
	}
	slices.SortFunc(ids, func(a, b messages.PageID) int {
		x, y := o.pages[a], o.pages[b]
		switch {
		case x.priority != y.priority:
			return int(x.priority) - int(y.priority)
		case x.use/2 != y.use/2:
			return cmp.Compare(x.use, y.use)
		case x.depth != y.depth:
			return int(y.depth) - int(x.depth)
		case x.use != y.use:
			return cmp.Compare(x.use, y.use)
		default:
			return int(a) - int(b)
		}
	})
	return ids
}

func (o *oracle) victim(id messages.PageID) messages.Victim {
	g := o.pages[id]
	return messages.Victim{Page: id, Block: g.block, Depth: g.depth, Priority: g.priority, Use: g.use}
}

// settle frees a page that is idle and caches nothing.
func (o *oracle) settle(id messages.PageID) {
	g := &o.pages[id]
	if g.idle() && g.block == messages.NoBlock {
		*g = oraclePage{block: messages.NoBlock}
		o.free = append(o.free, id)
	}
}

// do does one operation and returns it with the answers filled in.
func (o *oracle) do(op messages.PoolOp) (messages.PoolOp, []messages.Victim) {
	before := o.counts().Held
	if op.Kind == messages.Take {
		return o.take(op)
	}
	if op.Kind == messages.Foresee {
		return o.foresee(op)
	}
	if op.Kind == messages.HeldBlocks {
		for _, g := range o.pages {
			if g.references > 0 && g.block != messages.NoBlock {
				op.Blocks = append(op.Blocks, g.block)
			}
		}
	}
	for i := range op.Pages {
		at := i
		switch op.Kind {
		case messages.Drop, messages.Unclaim, messages.EndPin, messages.DetachPages:
			at = len(op.Pages) - 1 - i
		}
		if op.Pages[at] != messages.NoPage {
			o.doPage(&op, at)
		} else if op.Kind == messages.Inspect {
			op.Shares = append(op.Shares, messages.Share{})
		}
	}
	if op.Kind == messages.Claim {
		op.Count = o.counts().Held - before
	}
	return op, nil
}

func (o *oracle) doPage(op *messages.PoolOp, at int) {
	id := op.Pages[at]
	g := &o.pages[id]
	shelter := 0
	if op.Shelter {
		shelter = 1
	}
	switch op.Kind {
	case messages.Claim:
		g.references++
		g.shelters += shelter
	case messages.Drop:
		g.use = max(g.use, op.Use)
		g.references--
		g.shelters -= shelter
	case messages.Unclaim:
		g.references--
		g.shelters -= shelter
	case messages.AttachPages:
		g.block, g.depth, g.priority = op.Blocks[at], op.Depth+int32(at), op.Priority
	case messages.DetachPages:
		*g = oraclePage{block: messages.NoBlock, references: g.references, shelters: g.shelters}
	case messages.SetPriority:
		g.priority = op.Priority
	case messages.AddPins:
		g.pins += op.N
	case messages.EndPin:
		g.pins--
		g.use = max(g.use, op.Use)
	case messages.Unshelter:
		g.shelters--
	case messages.Inspect:
		op.Shares = append(op.Shares, messages.Share{
			References: int32(g.references), Pins: int32(g.pins), Stored: g.block != messages.NoBlock,
		})
	}
	switch op.Kind {
	case messages.Drop, messages.Unclaim, messages.EndPin, messages.DetachPages:
		o.settle(id)
	}
}

func (o *oracle) take(op messages.PoolOp) (messages.PoolOp, []messages.Victim) {
	var victims []messages.Victim
	for range op.N {
		var id messages.PageID
		if n := len(o.free); n > 0 {
			id, o.free = o.free[n-1], o.free[:n-1]
		} else {
			id = o.cachedInOrder()[0]
			victims = append(victims, o.victim(id))
		}
		o.pages[id] = oraclePage{block: messages.NoBlock, references: 1}
		if op.Shelter {
			o.pages[id].shelters = 1
		}
		op.Pages = append(op.Pages, id)
	}
	return op, victims
}

// foresee lists the next victims and, if they are too few, held pages that cache
// a block, from where the last look ended; eight are looked at for each.
func (o *oracle) foresee(op messages.PoolOp) (messages.PoolOp, []messages.Victim) {
	var victims []messages.Victim
	next := o.cachedInOrder()
	op.Count = min(op.N, len(next))
	for _, id := range next[:op.Count] {
		victims = append(victims, o.victim(id))
	}
	left := op.N - op.Count
	for range min(8*left, len(o.pages)) {
		if len(victims) == op.N {
			break
		}
		if o.hand >= len(o.pages) {
			o.hand = 0
		}
		if g := o.pages[o.hand]; !g.idle() && g.block != messages.NoBlock {
			victims = append(victims, o.victim(messages.PageID(o.hand)))
		}
		o.hand++
	}
	return op, victims
}

// resize is the text's rule: free pages, then cached ones in order, go; what
// lies beyond the end moves to the lowest free pages.
func (o *oracle) resize(pages int) (victims []messages.Victim, moves []messages.PageMove) {
	c := o.counts()
	for over := c.Used + c.Cached - pages; over > 0; over-- {
		id := o.cachedInOrder()[0]
		victims = append(victims, o.victim(id))
		o.pages[id] = oraclePage{block: messages.NoBlock}
	}
	empty := func(g oraclePage) bool { return g.idle() && g.block == messages.NoBlock }
	for i := pages; i < len(o.pages); i++ {
		if empty(o.pages[i]) {
			continue
		}
		to := slices.IndexFunc(o.pages, empty)
		o.pages[to], o.pages[i] = o.pages[i], oraclePage{block: messages.NoBlock}
		moves = append(moves, messages.PageMove{Old: messages.PageID(i), New: messages.PageID(to)})
	}
	old, hand := o.pages, o.hand
	*o = *newOracle(pages)
	o.hand = hand
	copy(o.pages, old)
	o.free = o.free[:0]
	for i := pages - 1; i >= 0; i-- {
		if empty(o.pages[i]) {
			o.free = append(o.free, messages.PageID(i))
		}
	}
	return victims, moves
}
