package oracle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// tree is what is stored: every block that some pool holds, with its priority, timer and
// session. The model keeps the blocks in a list and searches all of it.
type tree struct {
	*layout
	clock  *clock
	log    *eventLog
	blocks []*block
}

// find looks for the block with exactly this key.
func (t *tree) find(ns messages.Namespace, key []symbol) *block {
	for _, b := range t.blocks {
		if b.namespace == ns && slices.Equal(b.key, key) {
			return b
		}
	}
	return nil
}

// alive reports whether the block is still stored.
func (t *tree) alive(b *block) bool { return slices.Contains(t.blocks, b) }

// behind reports whether anything is stored behind the block.
func (t *tree) behind(b *block) bool {
	for _, c := range t.blocks {
		if c.namespace == b.namespace && len(c.key) > len(b.key) &&
			slices.Equal(c.key[:len(b.key)], b.key) && t.whole(b) {
			return true
		}
	}
	return false
}

// touch makes the block the one that was stored or claimed last.
func (t *tree) touch(b *block) {
	t.clock.touches++
	b.touched = t.clock.touches
}

// forget takes the block from one pool: pages cache nothing any more, pins end.
func (t *tree) forget(b *block, p *pool) {
	s := b.at[p.id]
	if s.device != nil {
		s.device.block = nil
	}
	if s.host != nil {
		s.host.block = nil
	}
	b.at[p.id] = nil
	t.log.removed(p, b)
	t.sweep(b)
}

// forgetAll takes the block from all pools.
func (t *tree) forgetAll(b *block) {
	for _, p := range t.pools {
		if b.at[p.id] != nil {
			t.forget(b, p)
		}
	}
}

// sweep ends a block that no pool has any more: priority, timer and session go
// with its last page.
func (t *tree) sweep(b *block) {
	for _, s := range b.at {
		if s != nil {
			return
		}
	}
	t.blocks = slices.DeleteFunc(t.blocks, func(c *block) bool { return c == b })
}

// setPriority changes the priority of a stored block and tells it once per pool.
func (t *tree) setPriority(b *block, to messages.Priority) {
	from := b.priority
	b.priority = to
	if from != to {
		t.log.priorityChanged(b, from)
	}
}

// expire ends the timers that are due, the earliest first, those of
// one moment in the order in which they were started.
func (t *tree) expire() {
	ended := slices.DeleteFunc(slices.Clone(t.blocks), func(b *block) bool {
		return !b.timed || t.clock.now < b.expires
	})
	slices.SortFunc(ended, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.started, b.started))
	})
	for _, b := range ended {
		b.timed = false
		t.setPriority(b, messages.DefaultPriority)
	}
}

// create makes a block that is stored for the first time: its timer starts.
func (t *tree) create(s *sequence, index int, key []symbol) *block {
	b := t.newBlock(s, index, key)
	t.enter(b, s)
	return b
}

// newBlock is a block of a sequence that is not stored yet.
func (t *tree) newBlock(s *sequence, index int, key []symbol) *block {
	b := &block{
		namespace: s.namespace, key: append([]symbol(nil), key...), index: index,
		at: make([]*spot, len(t.pools)), session: s.session,
	}
	b.priority, _, _ = retention(s, index*t.tpb)
	return b
}

// enter begins to store a block of a sequence.
func (t *tree) enter(b *block, s *sequence) {
	_, duration, _ := retention(s, b.index*t.tpb)
	t.startTimer(b, duration)
	s.retentionDone[name(b.namespace, b.key)] = true
	t.blocks = append(t.blocks, b)
}

// offerState stores a block that a state of a sequence belongs to, or follows that the sequence
// has it too.
func (t *tree) offerState(b *block, s *sequence) {
	if t.alive(b) {
		mergeSession(b, s.session)
		t.retain(b, s)
		return
	}
	t.enter(b, s)
	t.touch(b)
}

// fetched is the block with this key. One that is in no pool yet has the default priority,
// no timer and no session.
func (t *tree) fetched(ns messages.Namespace, key []symbol) *block {
	if b := t.find(ns, key); b != nil {
		return b
	}
	b := &block{
		namespace: ns, key: append([]symbol(nil), key...), index: len(key)/t.tpb - 1,
		at: make([]*spot, len(t.pools)), priority: messages.DefaultPriority,
	}
	t.blocks = append(t.blocks, b)
	return b
}

// passRetention notes that a sequence has passed its first blocks: a state that comes later has
// no retention from it.
func (s *sequence) passRetention(tokens, tpb int) {
	for end := tpb; end <= tokens; end += tpb {
		s.retentionDone[name(s.namespace, s.keys[0][:end])] = true
	}
}

// retain gives a block that is stored already the retention of a request that
// reuses or stores it, once.
func (t *tree) retain(b *block, s *sequence) {
	n := name(b.namespace, b.key)
	priority, duration, covered := retention(s, b.index*t.tpb)
	if !covered || s.retentionDone[n] {
		return
	}
	s.retentionDone[n] = true
	t.startTimer(b, duration)
	t.setPriority(b, priority)
}

func (t *tree) startTimer(b *block, d time.Duration) {
	b.timed = d > 0 && d <= math.MaxInt64-t.clock.now
	b.expires = t.clock.now + d
	t.clock.timers++
	b.started = t.clock.timers
}

// byDepth lists the blocks, those nearer to the start of their prompts first.
func (t *tree) byDepth() []*block {
	all := slices.Clone(t.blocks)
	slices.SortStableFunc(all, func(a, b *block) int { return a.index - b.index })
	return all
}
