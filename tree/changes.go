package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// spareRecords is how many records of changes wait to be filled at most: one is
// with the log while the next is filled.
const spareRecords = 2

// noEvent says that the next change is an event of its own.
const noEvent = -1

// record adds a change to those that the event log gets, joined to the event before
// or not. event is an index and not a pointer, since the list moves when it grows.
func (t *reporter) record(c protocol.Change) {
	j := &t.log
	if c.MakesEvent() {
		j.event = len(j.changes.List)
	}
	j.changes.List = append(j.changes.List, c)
}

// event tells whether the last event is of this kind and pool and the message under
// way may add to it.
func (t *reporter) event(kind protocol.ChangeKind, p int) bool {
	j := &t.log
	if j.event == noEvent {
		return false
	}
	e := &j.changes.List[j.event]
	return e.Kind == kind && int(e.Pool) == p
}

// recordEntered records that the blocks of node x from index i on, which have just
// been made, are in the tree.
func (t *reporter) recordEntered(x, i int32) {
	if t.recording {
		t.enter(t.log.changes, x, i)
	}
}

// enter adds the blocks of node x from index i on to a record, with all that the
// log needs to know them by: ids, tokens and what is before them.
func (t *reporter) enter(c *protocol.Changes, x, i int32) {
	ids, tokens := t.arena.ids(x)[i:], t.arena.tokensFrom(x, i)
	// The record has all that identifies the blocks, because the log gets it later:
	// by then they may have left the tree, and other blocks may have their ids.
	e := protocol.Change{
		Kind: protocol.BlocksEntered, Last: ids[len(ids)-1], Count: int32(len(ids)), Tokens: int32(len(tokens)),
		Parent: t.prior(x, i), Padding: t.padding(x, t.arena.nodes[x].n-1),
	}
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
	c.List = append(c.List, e)
}

// recordLeft records that consecutive blocks are not in the tree any more.
func (t *reporter) recordLeft(ids []protocol.BlockID) {
	// The change ends what the ids mean to the log; it must come before they are
	// given again.
	if t.recording && len(ids) > 0 {
		t.record(protocol.Change{Kind: protocol.BlocksLeft, Last: ids[len(ids)-1], Count: int32(len(ids))})
	}
}

// recordStored records that pool p, which did not hold the blocks of a segment,
// holds them from now on. They have one priority.
func (t *reporter) recordStored(g segment, p int) {
	if !t.recording {
		return
	}
	ids := t.arena.ids(g.node)[g.lo:g.hi]
	_, tier, _ := t.arena.locations(g.node, p)[g.lo].Page() // the host's if it came from a store
	c := protocol.Change{
		Kind: protocol.BlocksStored, Pool: messages.PoolID(p), Last: ids[len(ids)-1], Count: int32(len(ids)),
		Tier: tier, Priority: t.blocks.priority[ids[0]],
	}
	// An event names its first parent only, so blocks join it if they follow its last
	// block.
	c.Joined = t.event(c.Kind, p) && t.prior(g.node, g.lo) == t.log.stored
	t.log.stored = c.Last
	t.record(c)
}

// recordRemoved records that pool p does not hold b any more. Blocks that follow
// one another are one change.
func (t *reporter) recordRemoved(b protocol.BlockID, p int) {
	if !t.recording {
		return
	}
	c := protocol.Change{Kind: protocol.BlocksRemoved, Pool: messages.PoolID(p), Last: b, Count: 1}
	if c.Joined = t.event(c.Kind, p); c.Joined {
		list := t.log.changes.List
		// The block may join the change before, if it follows its last block in the
		// prefix; else it is another change of the same event.
		if last := &list[len(list)-1]; last.Kind == c.Kind && !last.Backwards && t.before(b) == last.Last {
			last.Last, last.Count = b, last.Count+1
			return
		}
	}
	t.record(c)
}

// recordEvicted records that pool p does not hold the blocks of a segment any more,
// the last one first. It is one change however long the run is. Readers get the
// blocks in the order of eviction.
func (t *reporter) recordEvicted(g segment, p int) {
	if !t.recording {
		return
	}
	t.record(protocol.Change{
		Kind: protocol.BlocksRemoved, Pool: messages.PoolID(p), Last: t.arena.ids(g.node)[g.hi-1], Count: g.hi - g.lo,
		Backwards: g.hi-g.lo > 1, Joined: t.event(protocol.BlocksRemoved, p),
	})
}

// recordTier records that pool p keeps b in the other tier from now on.
func (t *reporter) recordTier(b protocol.BlockID, p int, to messages.Tier) {
	if t.recording {
		t.record(protocol.Change{Kind: protocol.TierChanged, Pool: messages.PoolID(p), Last: b, Count: 1, Tier: to})
	}
}

// recordPriority records for pool p that the priority of b was old.
func (t *reporter) recordPriority(b protocol.BlockID, p int, old messages.Priority) {
	if t.recording {
		t.record(protocol.Change{
			Kind: protocol.PriorityChanged, Pool: messages.PoolID(p), Last: b, Count: 1, Priority: t.blocks.priority[b], OldPriority: old,
		})
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
