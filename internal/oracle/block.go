package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// symbol is a token as it is compared: its id and, where an item covers it, the
// item's hash and the position in it.
type symbol struct {
	id    messages.Token
	cover messages.Cover
}

// symbols reads a prompt with its items.
func symbols(tokens []messages.Token, items []messages.MultimodalItem) []symbol {
	key := make([]symbol, len(tokens))
	for i, t := range tokens {
		key[i].id = t
		for _, item := range items {
			if item.Start <= i && i < item.Start+item.Length {
				key[i].cover = messages.Cover{Covered: true, Hash: item.Hash, Position: i - item.Start}
			}
		}
	}
	return key
}

// shared is the number of leading symbols that two prefixes have in common.
func shared(a, b []symbol) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// block is a stored block: all tokens from the start to its end, and where each
// pool has it. It is in Oracle.blocks as long as some pool has it.
type block struct {
	namespace messages.Namespace
	key       []symbol
	index     int // in its prefix
	at        []*spot

	priority messages.Priority
	timed    bool
	expires  time.Duration
	started  uint64 // counts timers
	session  string // that it belongs to; empty: none
	touched  uint64 // last stored or claimed
}

// spot is where one pool has one block: on a device page, on a host page, or on
// both, and then the host page is a clean copy. A block that a pool forgets and
// stores again has a new spot.
type spot struct {
	device, host *page
	pins         int
	use          use
	ended        uint64 // when the use was left: counts all ends
	age          uint64 // of the clean copy: the request that made it
	born         uint64 // of the clean copy: counts all copies
}

// spend notes that a reference to the spot has ended. A commit that continues an
// old request may leave a use earlier than the last: it changes nothing.
func (o *Oracle) spend(s *spot, u use) {
	o.ends++
	if !u.before(s.use) {
		s.use, s.ended = u, o.ends
	}
}

// keepCopy notes that the host page is a clean copy from now on.
func (o *Oracle) keepCopy(s *spot) {
	o.copies++
	s.age, s.born = o.request, o.copies
}

// tier is the best tier of the spot.
func (s *spot) tier() messages.Tier {
	if s.device != nil {
		return messages.Primary
	}
	return messages.Secondary
}

// whole reports whether a block is stored whole: the key of one stored in part ends inside a block.
func (o *Oracle) whole(b *block) bool { return len(b.key)%o.tpb == 0 }

// find looks for the block with exactly this key.
func (o *Oracle) find(ns messages.Namespace, key []symbol) *block {
	for _, b := range o.blocks {
		if b.namespace == ns && slices.Equal(b.key, key) {
			return b
		}
	}
	return nil
}

// alive reports whether the block is still stored.
func (o *Oracle) alive(b *block) bool { return slices.Contains(o.blocks, b) }

// behind reports whether anything is stored behind the block.
func (o *Oracle) behind(b *block) bool {
	for _, c := range o.blocks {
		if c.namespace == b.namespace && len(c.key) > len(b.key) && slices.Equal(c.key[:len(b.key)], b.key) && o.whole(b) {
			return true
		}
	}
	return false
}

// held reports whether each of some pools has a page of the block, in either tier.
func held(b *block, pools []*pool) bool {
	return b != nil && !slices.ContainsFunc(pools, func(p *pool) bool { return b.at[p.id] == nil })
}

// touch makes the block the one that was stored or claimed last.
func (o *Oracle) touch(b *block) {
	o.touches++
	b.touched = o.touches
}

// forget takes the block from one pool: pages cache nothing any more, pins end.
func (o *Oracle) forget(b *block, p *pool) {
	s := b.at[p.id]
	if s.device != nil {
		s.device.block = nil
	}
	if s.host != nil {
		s.host.block = nil
	}
	b.at[p.id] = nil
	o.emitRemoved(p, b)
	o.sweep(b)
}

// forgetAll takes the block from all pools.
func (o *Oracle) forgetAll(b *block) {
	for _, p := range o.pool {
		if b.at[p.id] != nil {
			o.forget(b, p)
		}
	}
}

// sweep ends a block that no pool has any more: priority, timer and session go
// with its last page.
func (o *Oracle) sweep(b *block) {
	for _, s := range b.at {
		if s != nil {
			return
		}
	}
	o.blocks = slices.DeleteFunc(o.blocks, func(c *block) bool { return c == b })
}

// setPriority changes the priority of a stored block and tells it once per pool.
func (o *Oracle) setPriority(b *block, to messages.Priority) {
	from := b.priority
	b.priority = to
	if from == to {
		return
	}
	for _, p := range o.pool {
		if b.at[p.id] != nil {
			o.emit(kvevents.Event{
				Type: kvevents.EventUpdated, Pool: messages.PoolID(p.id), Hash: hash(b.namespace, b.key),
				OldPriority: from, NewPriority: to,
			})
		}
	}
}

// expire ends the timers that are due, the earliest first, those of
// one moment in the order in which they were started.
func (o *Oracle) expire() {
	ended := slices.DeleteFunc(slices.Clone(o.blocks), func(b *block) bool { return !b.timed || o.now < b.expires })
	slices.SortFunc(ended, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.started, b.started))
	})
	for _, b := range ended {
		b.timed = false
		o.setPriority(b, messages.DefaultPriority)
	}
}
