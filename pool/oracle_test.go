package pool

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// oraclePage and oracle are the pool as one would draw it on a whiteboard: facts
// on every page, a stack of free pages, and a full search for every victim.
type oraclePage struct {
	references, covered, pins int
	block                     protocol.BlockID
	depth                     int32
	priority                  messages.Priority
	use                       protocol.Use
	tenant                    protocol.Tenant
}

type oracle struct {
	pages    []oraclePage
	free     []messages.PageID // the last is taken first
	scanNext int               // the page at which a look at held ones goes on
	quotas   []windows.Quota   // by tenant; nil: none
	total    int               // pages that they are shares of
	chosen   []protocol.Victim // with a forecast: what the pool has evicted, in this order
	illegal  []string          // what it should not have evicted
}

func newOracle(pages int, quotas ...windows.Quota) *oracle {
	o := &oracle{pages: make([]oraclePage, pages), quotas: quotas, total: pages}
	for i := range pages {
		o.pages[i].block = protocol.NoBlock
		o.free = append(o.free, messages.PageID(pages-1-i))
	}
	return o
}

func (g oraclePage) unheld() bool { return g.references == 0 && g.pins == 0 }
func (g oraclePage) cached() bool { return g.unheld() && g.block != protocol.NoBlock }

// held is the comment of PoolPages.Held: sequences and pins, but for what only a
// chunked prefill holds.
func (g oraclePage) held() bool {
	if g.pins > 0 {
		return true
	}
	return g.references > 0 && !(g.references == 1 && g.covered == 1)
}

func (o *oracle) counts() protocol.PoolPages {
	c := protocol.PoolPages{TierPages: inspect.TierPages{Total: len(o.pages), Free: len(o.free)}}
	for _, g := range o.pages {
		if g.cached() {
			c.Cached++
		}
		if !g.unheld() {
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

// account counts the pages of a tenant.
func (o *oracle) account(t protocol.Tenant) protocol.Account {
	a := protocol.Account{Quota: o.quotas[t].Pages(o.total)}
	for _, g := range o.pages {
		switch {
		case g.tenant != t:
		case !g.unheld():
			a.Used++
		case g.cached():
			a.Cached++
		}
	}
	return a
}

// over tells whether a tenant has more than its quota.
func (o *oracle) over(t protocol.Tenant) bool {
	if len(o.quotas) == 0 {
		return false
	}
	a := o.account(t)
	return a.Used+a.Cached > a.Quota
}

// next is the page that goes when a tenant takes one: from its own contents if it
// has reached its quota, else from those of tenants over theirs, else from all.
func (o *oracle) next(taker protocol.Tenant) messages.PageID {
	id := o.nextByUse(taker)
	if o.chosen == nil {
		return id
	}
	// A forecast may choose any cached page of the same priority, of the same tenants.
	v := o.chosen[0]
	o.chosen = o.chosen[1:]
	g, want := o.pages[v.Page], o.pages[id]
	sameTenants := g.tenant == want.tenant || o.over(g.tenant) == o.over(want.tenant) &&
		!o.ownFirst(taker)
	if !g.cached() || g.priority != want.priority || !sameTenants {
		o.illegal = append(o.illegal, fmt.Sprintf("victim %+v is %+v, by use it is page %d, %+v", v, g,
			id, want))
	}
	return v.Page
}

// choose is the page of some tenants that a forecast has chosen instead of the one that goes by
// use.
func (o *oracle) choose(id messages.PageID, group func(protocol.Tenant) bool) messages.PageID {
	if o.chosen == nil {
		return id
	}
	if len(o.chosen) == 0 {
		o.illegal = append(o.illegal, fmt.Sprintf("no victim, by use it is page %d, %+v", id,
			o.pages[id]))
		return id
	}
	v := o.chosen[0]
	o.chosen = o.chosen[1:]
	if g := o.pages[v.Page]; !g.cached() || g.priority != o.pages[id].priority || !group(g.tenant) {
		o.illegal = append(o.illegal, fmt.Sprintf("victim %+v is %+v, by use it is page %d, %+v", v, g,
			id, o.pages[id]))
	}
	return v.Page
}

// ownFirst tells whether a tenant that takes a page replaces its own contents.
func (o *oracle) ownFirst(taker protocol.Tenant) bool {
	if len(o.quotas) == 0 {
		return false
	}
	a := o.account(taker)
	return a.Cached > 0 && a.Used+a.Cached >= a.Quota
}

// nextByUse is next by the rule of priority_lru.
func (o *oracle) nextByUse(taker protocol.Tenant) messages.PageID {
	if len(o.quotas) > 0 {
		if a := o.account(taker); a.Cached > 0 && a.Used+a.Cached >= a.Quota {
			return o.firstOf(func(t protocol.Tenant) bool { return t == taker })
		}
	}
	return o.surplus()
}

func (o *oracle) surplus() messages.PageID {
	if len(o.quotas) > 0 {
		if id := o.firstOf(o.over); id != messages.NoPage {
			return id
		}
	}
	return o.cachedInOrder()[0]
}

// firstOf is the first cached page of some tenants in eviction order.
func (o *oracle) firstOf(want func(protocol.Tenant) bool) messages.PageID {
	for _, id := range o.cachedInOrder() {
		if want(o.pages[id].tenant) {
			return id
		}
	}
	return messages.NoPage
}

func (o *oracle) victim(id messages.PageID) protocol.Victim {
	g := o.pages[id]
	return protocol.Victim{Page: id, Block: g.block, Depth: g.depth, Priority: g.priority, Use: g.use,
		Tenant: g.tenant}
}

// freeIfUnused frees a page that is idle and caches nothing.
func (o *oracle) freeIfUnused(id messages.PageID) {
	g := &o.pages[id]
	if g.unheld() && g.block == protocol.NoBlock {
		*g = oraclePage{block: protocol.NoBlock}
		o.free = append(o.free, id)
	}
}

// do does one operation and returns it with the answers filled in.
func (o *oracle) do(op protocol.PoolOp) (protocol.PoolOp, []protocol.Victim) {
	if op.Kind == protocol.Take {
		return o.take(op)
	}
	if op.Kind == protocol.TakeForCheckpoint {
		return o.takeForCheckpoint(op)
	}
	if op.Kind == protocol.PeekVictims {
		return o.peekVictims(op)
	}
	if op.Kind == protocol.HeldBlocks {
		for _, g := range o.pages {
			if g.references > 0 && g.block != protocol.NoBlock {
				op.Blocks = append(op.Blocks, g.block)
			}
		}
	}
	for i := range op.Pages {
		at := i
		switch op.Kind {
		case protocol.Drop, protocol.Unclaim, protocol.EndPin, protocol.DetachPages:
			at = len(op.Pages) - 1 - i
		}
		if op.Pages[at] != messages.NoPage {
			o.doPage(&op, at)
		} else if op.Kind == protocol.Inspect {
			op.Shares = append(op.Shares, protocol.Share{})
		}
	}
	return op, nil
}

func (o *oracle) doPage(op *protocol.PoolOp, at int) {
	id := op.Pages[at]
	g := &o.pages[id]
	covered := 0
	if op.CoveredByReservation {
		covered = 1
	}
	switch op.Kind {
	case protocol.Claim:
		g.references++
		g.covered += covered
	case protocol.Drop:
		g.use = max(g.use, op.Use)
		g.references--
		g.covered -= covered
	case protocol.Unclaim:
		g.references--
		g.covered -= covered
	case protocol.AttachPages:
		g.block, g.depth = op.Blocks[at], op.Depth+int32(at)
		g.priority = op.Priority
	case protocol.DetachPages:
		*g = oraclePage{block: protocol.NoBlock, references: g.references, covered: g.covered,
			tenant: g.tenant}
	case protocol.SetPriority:
		g.priority = op.Priority
	case protocol.AddPins:
		g.pins += op.N
	case protocol.EndPin:
		g.pins--
		g.use = max(g.use, op.Use)
	case protocol.EndCoverage:
		g.covered--
	case protocol.Inspect:
		share := protocol.Share{References: int32(g.references), Pins: int32(g.pins),
			Stored: g.block != protocol.NoBlock, Held: g.held()}
		if share.Stored {
			share.Priority, share.Use = g.priority, g.use
		}
		op.Shares = append(op.Shares, share)
	}
	switch op.Kind {
	case protocol.Drop, protocol.Unclaim, protocol.EndPin, protocol.DetachPages:
		o.freeIfUnused(id)
	}
}

// takeForCheckpoint takes a free page or a cached one whose contents are worth no
// more than the operation's priority.
func (o *oracle) takeForCheckpoint(op protocol.PoolOp) (protocol.PoolOp, []protocol.Victim) {
	if len(o.free) > 0 {
		op.N = 1
		return o.take(op)
	}
	groups := []func(protocol.Tenant) bool{func(protocol.Tenant) bool { return true }}
	if len(o.quotas) > 0 {
		groups = append([]func(protocol.Tenant) bool{o.over}, groups...)
		if a := o.account(op.Tenant); a.Used+a.Cached >= a.Quota {
			groups = append(
				[]func(protocol.Tenant) bool{func(t protocol.Tenant) bool { return t == op.Tenant }}, groups...)
		}
	}
	for _, group := range groups {
		for _, id := range o.cachedInOrder() {
			if group(o.pages[id].tenant) && o.pages[id].priority <= op.Priority {
				id = o.choose(id, group)
				victims := []protocol.Victim{o.victim(id)}
				o.pages[id] = oraclePage{block: protocol.NoBlock, references: 1, tenant: op.Tenant}
				op.Pages = append(op.Pages, id)
				return op, victims
			}
		}
	}
	return op, nil
}

func (o *oracle) take(op protocol.PoolOp) (protocol.PoolOp, []protocol.Victim) {
	var victims []protocol.Victim
	for range op.N {
		var id messages.PageID
		if n := len(o.free); n > 0 {
			id, o.free = o.free[n-1], o.free[:n-1]
		} else {
			id = o.next(op.Tenant)
			victims = append(victims, o.victim(id))
		}
		o.pages[id] = oraclePage{block: protocol.NoBlock, references: 1, tenant: op.Tenant}
		if op.CoveredByReservation {
			o.pages[id].covered = 1
		}
		op.Pages = append(op.Pages, id)
	}
	return op, victims
}

// peekVictims lists the next victims and, if they are too few, held pages that cache
// a block, from where the last look ended; eight are looked at for each.
func (o *oracle) peekVictims(op protocol.PoolOp) (protocol.PoolOp, []protocol.Victim) {
	var victims []protocol.Victim
	next := o.lookedAt(op.N)
	op.Count = len(next)
	for _, id := range next {
		victims = append(victims, o.victim(id))
	}
	left := op.N - op.Count
	for range min(8*left, len(o.pages)) {
		if len(victims) == op.N {
			break
		}
		if o.scanNext >= len(o.pages) {
			o.scanNext = 0
		}
		if g := o.pages[o.scanNext]; !g.unheld() && g.block != protocol.NoBlock {
			victims = append(victims, o.victim(messages.PageID(o.scanNext)))
		}
		o.scanNext++
	}
	return op, victims
}

// lookedAt are at most n pages that are evicted next. With quotas they are those that
// tenants have beyond theirs, then an equal part for each other tenant.
func (o *oracle) lookedAt(n int) (pages []messages.PageID) {
	if len(o.quotas) == 0 {
		next := o.cachedInOrder()
		return next[:min(n, len(next))]
	}
	look := func(t protocol.Tenant, most int) {
		most = min(most, n-len(pages))
		for _, id := range o.cachedInOrder() {
			if o.pages[id].tenant == t && most > 0 {
				pages = append(pages, id)
				most--
			}
		}
	}
	for t := range o.quotas {
		if a := o.account(protocol.Tenant(t)); o.over(protocol.Tenant(t)) {
			look(protocol.Tenant(t), a.Used+a.Cached-a.Quota)
		}
	}
	part := (n-len(pages))/len(o.quotas) + 1
	for t := range o.quotas {
		if !o.over(protocol.Tenant(t)) {
			look(protocol.Tenant(t), part)
		}
	}
	return pages
}

// resize is the text's rule: free pages, then cached ones in order, go; what
// lies beyond the end moves to the lowest free pages.
func (o *oracle) resize(pages int) (victims []protocol.Victim, moves []messages.PageMove) {
	c := o.counts()
	o.total = pages
	for over := c.Used + c.Cached - pages; over > 0; over-- {
		id := o.surplus()
		if o.chosen != nil {
			id, o.chosen = o.chosen[0].Page, o.chosen[1:]
		}
		victims = append(victims, o.victim(id))
		o.pages[id] = oraclePage{block: protocol.NoBlock}
	}
	empty := func(g oraclePage) bool { return g.unheld() && g.block == protocol.NoBlock }
	for i := pages; i < len(o.pages); i++ {
		if empty(o.pages[i]) {
			continue
		}
		to := slices.IndexFunc(o.pages, empty)
		o.pages[to], o.pages[i] = o.pages[i], oraclePage{block: protocol.NoBlock}
		moves = append(moves, messages.PageMove{Old: messages.PageID(i), New: messages.PageID(to)})
	}
	old, scanNext := o.pages, o.scanNext
	chosen := o.chosen
	*o = *newOracle(pages, o.quotas...)
	o.chosen = chosen
	o.scanNext = scanNext
	copy(o.pages, old)
	o.free = o.free[:0]
	for i := pages - 1; i >= 0; i-- {
		if empty(o.pages[i]) {
			o.free = append(o.free, messages.PageID(i))
		}
	}
	return victims, moves
}
