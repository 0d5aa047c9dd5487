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

// record records a change of block b in pool p, which may have got a tier and a priority, and
// returns it: nil if changes are not recorded. Blocks that a pool gets, or loses, one after the
// other are one event, and those that follow one another and are alike one change.
func (t *reporter) record(
	kind protocol.ChangeKind, p int, b protocol.BlockID, tier messages.Tier,
	priority messages.Priority,
) *protocol.Change {
	if !t.recording {
		return nil
	}
	j, parent := &t.log, t.arena.blocks[b].parent
	// An event of stored blocks names its first parent only, so a block joins it if it follows
	// its last block.
	joined := j.event == event{kind, messages.PoolID(p)} &&
		(kind == protocol.BlocksRemoved || kind == protocol.BlocksStored && parent == j.last)
	j.event, j.last = event{kind, messages.PoolID(p)}, b
	if joined {
		if c := &j.changes.List[len(j.changes.List)-1]; c.Kind == kind && c.Tier == tier &&
			c.Priority == priority && c.Last == parent {
			c.Last, c.Count = b, c.Count+1
			return c
		}
	}
	c := addChange(j.changes, kind)
	c.Pool, c.Joined, c.Last, c.Count = messages.PoolID(p), joined, b, 1
	c.Tier, c.Priority = tier, priority
	return c
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
	_, tier, _ := t.arena.locations[p][b].Page() // the host's if it came from a store
	t.record(protocol.BlocksStored, p, b, tier, t.arena.blocks[b].priority)
}
