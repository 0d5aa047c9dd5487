package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// spareRecords is how many records of changes wait to be filled at most: one is
// with the log while the next is filled.
const spareRecords = 2

// event is the kind and the pool of an event, to which later changes may be joined.
type event struct {
	kind protocol.ChangeKind
	pool messages.PoolID
}

// noEvent says that the next change is an event of its own: no event is of this kind.
var noEvent = event{kind: protocol.BlocksEntered}

// addChange adds a change to a record, and returns it. It is valid until the next
// change is added.
func addChange(r *protocol.Changes, kind protocol.ChangeKind) *protocol.Change {
	n := len(r.List)
	if n == cap(r.List) {
		r.List = slices.Grow(r.List, 1)
	}
	r.List = r.List[:n+1]
	// The fields are written where they stay: a change that is made elsewhere and
	// copied costs twice as much, since the copy waits for the single fields.
	c := &r.List[n]
	*c = protocol.Change{}
	c.Kind = kind
	return c
}

// listed tells whether the event log gets lists of changes, and not only their number.
func (t *reporter) listed() bool { return t.recording && !t.log.counting }

// record adds a change of pool p to those that the event log gets: joined to the event
// before, or an event of its own. The change is nil, and only its event counted, while
// changes are not listed.
func (t *reporter) record(kind protocol.ChangeKind, p int, joined bool) *protocol.Change {
	j := &t.log
	if !joined {
		j.event = event{kind, messages.PoolID(p)}
	}
	if j.counting {
		if !joined {
			j.changes.Counted++
		}
		return nil
	}
	c := addChange(j.changes, kind)
	c.Pool, c.Joined = messages.PoolID(p), joined
	return c
}

// joins tells whether a change of this kind and pool may be joined to the last event: the
// event is of the same kind and pool, and of the message under way.
func (t *reporter) joins(kind protocol.ChangeKind, p int) bool {
	return t.log.event == event{kind, messages.PoolID(p)}
}

// recordEntered records that the blocks of node x from index i on, which have just
// been made, are in the tree.
func (t *reporter) recordEntered(x, i int32) {
	if t.listed() {
		t.enter(t.log.changes, segment{x, i, t.arena.nodes[x].n})
	}
}

// enter adds the blocks of a segment to a record, with all that the log needs to know
// them by: ids, tokens and what is before them.
func (t *reporter) enter(c *protocol.Changes, g segment) {
	x, i := g.node, g.lo
	ids, tokens := t.arena.ids(x)[i:g.hi], t.arena.tokensFrom(x, i)
	if g.hi < t.arena.nodes[x].n {
		tokens = tokens[:len(ids)*t.arena.tpb]
	}
	// The record has all that identifies the blocks, because the log gets it later:
	// by then they may have left the tree, and other blocks may have their ids.
	e := addChange(c, protocol.BlocksEntered)
	e.Last, e.Count, e.Tokens = ids[len(ids)-1], int32(len(ids)), int32(len(tokens))
	e.Parent, e.Padding = t.prior(x, i), t.padding(x, g.hi-1)
	c.Blocks = append(c.Blocks, ids...)
	first := len(c.Tokens)
	c.Tokens = append(c.Tokens, tokens...)
	// Symbols are numbers of this tree and are used again. The log gets the host's
	// tokens and what covers them instead, so that names are the same in every run.
	if !t.symbols.none() && len(fromSymbol(tokens)) > 0 {
		e.Covered = true
		c.Covers = append(c.Covers, t.symbols.covers(tokens)...)
		t.symbols.restore(c.Tokens[first:])
	}
	// The namespace stands once in a record for each prefix that begins, since every
	// other block leads to its prefix by its parent.
	if e.Parent == protocol.NoBlock {
		c.Namespaces = append(c.Namespaces, t.roots[t.arena.nodes[t.parentOf(x)].root].namespace)
	}
}

// recordLeft records that consecutive blocks are not in the tree any more.
func (t *reporter) recordLeft(ids []protocol.BlockID) {
	// The change ends what the ids mean to the log; it must come before they are
	// given again.
	if t.listed() && len(ids) > 0 {
		c := addChange(t.log.changes, protocol.BlocksLeft)
		c.Last, c.Count = ids[len(ids)-1], int32(len(ids))
	}
}

// recordStored records that pool p, which did not hold the blocks of a segment,
// holds them from now on. They have one priority.
func (t *reporter) recordStored(g segment, p int) {
	if !t.recording {
		return
	}
	ids := t.arena.ids(g.node)[g.lo:g.hi]
	// An event names its first parent only, so blocks join it if they follow its last
	// block.
	joined := t.joins(protocol.BlocksStored, p) && t.prior(g.node, g.lo) == t.log.stored
	t.log.stored = ids[len(ids)-1]
	if c := t.record(protocol.BlocksStored, p, joined); c != nil {
		_, c.Tier, _ = t.arena.locations(g.node, p)[g.lo].Page() // the host's if it came from a store
		c.Last, c.Count, c.Priority = t.log.stored, int32(len(ids)), t.blocks.priority[ids[0]]
	}
}

// recordRemoved records that pool p does not hold b any more. Blocks that follow
// one another are one change.
func (t *reporter) recordRemoved(b protocol.BlockID, p int) {
	if !t.recording {
		return
	}
	joined := t.joins(protocol.BlocksRemoved, p)
	if joined && !t.log.counting {
		list := t.log.changes.List
		// The block may join the change before, if it follows its last block in the
		// prefix; else it is another change of the same event.
		if last := &list[len(list)-1]; last.Kind == protocol.BlocksRemoved && !last.Backwards && t.before(b) == last.Last {
			last.Last, last.Count = b, last.Count+1
			return
		}
	}
	if c := t.record(protocol.BlocksRemoved, p, joined); c != nil {
		c.Last, c.Count = b, 1
	}
}

// recordEvicted records that pool p does not hold the blocks of a segment any more,
// the last one first. It is one change however long the run is. Readers get the
// blocks in the order of eviction.
func (t *reporter) recordEvicted(g segment, p int) {
	if !t.recording {
		return
	}
	if c := t.record(protocol.BlocksRemoved, p, t.joins(protocol.BlocksRemoved, p)); c != nil {
		c.Last, c.Count, c.Backwards = t.arena.ids(g.node)[g.hi-1], g.hi-g.lo, g.hi-g.lo > 1
	}
}

// recordTier records that pool p keeps b in the other tier from now on.
func (t *reporter) recordTier(b protocol.BlockID, p int, to messages.Tier) {
	if !t.recording {
		return
	}
	if c := t.record(protocol.TierChanged, p, false); c != nil {
		c.Last, c.Count, c.Tier = b, 1, to
	}
}

// recordPriority records for pool p that the priority of b was old.
func (t *reporter) recordPriority(b protocol.BlockID, p int, old messages.Priority) {
	if !t.recording {
		return
	}
	if c := t.record(protocol.PriorityChanged, p, false); c != nil {
		c.Last, c.Count, c.Priority, c.OldPriority = b, 1, t.blocks.priority[b], old
	}
}

// keys adds the keys of node x in pool p: one event for each run without holes, in
// changes of blocks that are alike.
func (t *reporter) keys(c *protocol.Changes, x int32, p int) {
	joined := false
	for i, l := range t.arena.locations(x, p) {
		_, tier, held := l.Page()
		if !held {
			joined = false
			continue
		}
		b := t.arena.ids(x)[i]
		// Unless joined is set, the last change is of another event, or of the
		// entering blocks.
		if last := &c.List[len(c.List)-1]; joined && last.Tier == tier && last.Priority == t.blocks.priority[b] {
			last.Last, last.Count = b, last.Count+1
			continue
		}
		c.List = append(c.List, protocol.Change{
			Kind: protocol.BlocksStored, Pool: messages.PoolID(p), Last: b, Count: 1, Joined: joined,
			Tier: tier, Priority: t.blocks.priority[b],
		})
		joined = true
	}
}
