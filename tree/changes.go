package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

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

// record adds a change of pool p to those that the event log gets: joined to the event
// before, or an event of its own.
func (t *reporter) record(kind protocol.ChangeKind, p int, joined bool) *protocol.Change {
	j := &t.log
	if !joined {
		j.event = event{kind, messages.PoolID(p)}
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

// recordEntered records that consecutive blocks, which have just been made, are in the
// tree: whole ones, or one that is stored in part.
func (t *reporter) recordEntered(ids []protocol.BlockID) {
	if !t.recording || len(ids) == 0 {
		return
	}
	c := t.log.changes
	// The record has all that identifies the blocks, because the log gets it later:
	// by then they may have left the tree, and other blocks may have their ids.
	e := addChange(c, protocol.BlocksEntered)
	e.Last, e.Count = ids[len(ids)-1], int32(len(ids))
	e.Parent, e.Padding = t.arena.blocks[ids[0]].parent, t.arena.padding(e.Last)
	c.Blocks = append(c.Blocks, ids...)
	first := len(c.Tokens)
	c.Tokens = slices.Grow(c.Tokens, len(ids)*t.arena.tpb) // followers keep the array
	for _, b := range ids {
		c.Tokens = append(c.Tokens, t.arena.tokensOf(b)...)
	}
	tokens := c.Tokens[first:]
	e.Tokens = int32(len(tokens))
	// Symbols are numbers of this tree and are used again. The log gets the host's
	// tokens and what covers them instead, so that names are the same in every run.
	if !t.arena.symbols.none() && slices.ContainsFunc(tokens,
		func(tok messages.Token) bool { return tok < 0 }) {
		e.Covered = true
		c.Covers = append(c.Covers, t.arena.symbols.covers(tokens)...)
		t.arena.symbols.restore(tokens)
	}
	// The namespace stands once in a record for each prefix that begins, since every
	// other block leads to its prefix by its parent.
	if e.Parent == protocol.NoBlock {
		c.Namespaces = append(c.Namespaces, t.arena.roots[t.arena.blocks[ids[0]].root].namespace)
	}
}

// recordLeft records that a block is not in the tree any more. The change ends what the id
// means to the log; it comes before the id is given again.
func (t *reporter) recordLeft(b protocol.BlockID) {
	if !t.recording {
		return
	}
	c := addChange(t.log.changes, protocol.BlocksLeft)
	c.Last, c.Count = b, 1
}

// recordStored records that pool p, which did not hold block b, holds it from now on.
func (t *reporter) recordStored(b protocol.BlockID, p int) {
	if !t.recording {
		return
	}
	// An event names its first parent only, so a block joins it if it follows its last
	// block.
	joined := t.joins(protocol.BlocksStored, p) && t.arena.blocks[b].parent == t.log.stored
	t.log.stored = b
	_, tier, _ := t.arena.locations[p][b].Page() // the host's if it came from a store
	priority := t.arena.blocks[b].priority
	if joined {
		list := t.log.changes.List
		if last := &list[len(list)-1]; last.Kind == protocol.BlocksStored &&
			last.Tier == tier && last.Priority == priority {
			last.Last, last.Count = b, last.Count+1
			return
		}
	}
	c := t.record(protocol.BlocksStored, p, joined)
	c.Last, c.Count, c.Tier, c.Priority = b, 1, tier, priority
}

// recordRemoved records that pool p does not hold b any more. Blocks that follow
// one another are one change.
func (t *reporter) recordRemoved(b protocol.BlockID, p int) {
	if !t.recording {
		return
	}
	joined := t.joins(protocol.BlocksRemoved, p)
	if joined {
		list := t.log.changes.List
		// The block may join the change before, if it follows its last block in the
		// prefix; else it is another change of the same event.
		if last := &list[len(list)-1]; last.Kind == protocol.BlocksRemoved &&
			t.arena.blocks[b].parent == last.Last {
			last.Last, last.Count = b, last.Count+1
			return
		}
	}
	c := t.record(protocol.BlocksRemoved, p, joined)
	c.Last, c.Count = b, 1
}

// recordTier records that pool p keeps b in the other tier from now on.
func (t *reporter) recordTier(b protocol.BlockID, p int, to messages.Tier) {
	if !t.recording {
		return
	}
	c := t.record(protocol.TierChanged, p, false)
	c.Last, c.Count, c.Tier = b, 1, to
}

// recordPriority records for pool p that the priority of b was old.
func (t *reporter) recordPriority(b protocol.BlockID, p int, old messages.Priority) {
	if !t.recording {
		return
	}
	c := t.record(protocol.PriorityChanged, p, false)
	c.Last, c.Count, c.Priority, c.OldPriority = b, 1, t.arena.blocks[b].priority, old
}
