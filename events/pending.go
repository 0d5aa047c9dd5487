package events

import "github.com/kvactor/kvactor/internal/protocol"

// pendingSize is how large the changes are that Append leaves for later, as sizeOf
// counts: some 28 decode steps of 512 sequences in three pools. Beyond it each
// Append applies twice as much as it adds.
const pendingSize = 8192

// pending are changes that the log has copied and not applied yet, oldest first.
// Applying a change touches the runs of its blocks, which are in no processor's
// cache: it costs five times the copy. So Append only copies, and the changes are
// applied when a reader asks, or when the engine has time for it.
//
//	Append ──▶ newer      older ──▶ apply
//	             └─ swapped when older is empty
//
// Records are applied whole: an event may have changes anywhere in its record.
//
// Invariant: newer and older are at most three times as large as size each, which is
// 4 MiB together. A record has at most a quarter of size, else it is not copied. While
// newer is above size, older loses twice what newer gains, so newer ends below size +
// half of older + two records.
type pending struct {
	size  int
	older *records
	newer *records
}

// records are records of changes one behind the other.
//
// Invariant: changes have those of all records; rest are those that are not applied,
// those of lengths[applied:].
type records struct {
	changes protocol.Changes
	rest    protocol.Changes // refers to the arrays of changes
	lengths []int            // of each record, in changes
	applied int              // records
}

func newPending(size int) pending { return pending{size: size, older: &records{}, newer: &records{}} }

// sizeOf is the size of changes, in units of at most 64 bytes.
func sizeOf(c *protocol.Changes) int {
	return len(c.List) + len(c.Blocks) + len(c.Tokens)/16 + len(c.Covers)
}

// add copies a record.
func (r *records) add(c *protocol.Changes) {
	r.changes.Add(c)
	r.rest = r.changes // nothing is applied of records that grow
	r.lengths = append(r.lengths, len(c.List))
}

// reset forgets all records.
func (r *records) reset() {
	r.changes.Reset()
	*r = records{changes: r.changes, lengths: r.lengths[:0]}
}

// Pending returns the size of the changes that have been appended and not applied.
func (l *Log) Pending() int { return sizeOf(&l.pending.older.rest) + sizeOf(&l.pending.newer.rest) }

// Append makes events of changes and keeps them; the oldest that do not fit are
// lost. The changes are copied, and applied later: nothing in the record is needed
// afterwards. While no reader comes back, they are only counted.
func (l *Log) Append(c *protocol.Changes) {
	if !l.Enabled() || len(c.List) == 0 && c.Counted == 0 {
		return
	}
	// The tree counts only for a log that does so itself. Another log has missed changes: what
	// it knows is wrong from here on.
	if c.Counted > 0 && !l.blind {
		l.forgetUnread()
	}
	if l.blind {
		// Blocks that leave make no event, and cost no reader a pool's creation.
		if n := c.Events(); n > 0 {
			l.announced += uint64(n)
			l.dropAll(n)
			l.verify()
		}
		return
	}
	size, p := sizeOf(c), &l.pending
	// The copy of a long prompt would take longer than what it puts off.
	if size > p.size/4 {
		l.applyAll()
		l.announced += uint64(c.Events())
		rest := *c
		l.apply(&rest, len(rest.List))
		l.trimUnread()
	} else {
		l.announced += uint64(c.Events())
		p.newer.add(c)
		if sizeOf(&p.newer.changes) > p.size {
			l.Apply(2 * size)
		}
	}
	if l.absent() {
		l.forgetUnread()
	}
	l.verify()
}

// Apply applies pending records, oldest first, until they are of the given size.
func (l *Log) Apply(size int) {
	p := &l.pending
	for left := l.Pending(); left > 0 && size > 0; {
		if p.older.applied == len(p.older.lengths) {
			p.older.reset()
			p.older, p.newer = p.newer, p.older
		}
		o := p.older
		l.apply(&o.rest, o.lengths[o.applied])
		o.applied++
		now := l.Pending()
		size -= left - now
		left = now
	}
	// Once for many changes and not for each event.
	l.trimUnread()
	l.verify()
}

// applyAll applies all that is pending: what follows must be behind it.
func (l *Log) applyAll() { l.Apply(l.Pending()) }

// apply applies the first n changes of a record and cuts them off.
func (l *Log) apply(rest *protocol.Changes, n int) {
	l.touch(rest.List[:n])
	for i := range n {
		change := &rest.List[i]
		// A record is read in order: a block that has left may have its id given to
		// another one later in the same record.
		switch change.Kind {
		case protocol.BlocksEntered:
			l.enter(change, bring(rest, change))
		case protocol.BlocksLeft:
			l.leave(&l.source, change)
		case protocol.EverythingForgot:
			l.push().kind = change.Kind
		default:
			l.change(change)
		}
	}
	rest.List = rest.List[n:]
}

// touch reads the runs that changes will change. These reads do not wait for each
// other, as those of the changes themselves do: most runs are in no processor's cache.
func (l *Log) touch(list []protocol.Change) {
	blocks, runs, sum := l.source.blocks, l.runs.list, int32(0)
	for i := range list {
		id := list[i].Last
		if list[i].Kind == protocol.BlocksEntered {
			id = list[i].Parent
		}
		// A block that enters in the same record has no run yet, or a stale one.
		if int(id) < len(blocks) && id >= 0 {
			if n := blocks[id].run; int(n) < len(runs) {
				sum += runs[n].refs
			}
		}
	}
	// The events that these will displace.
	for i := range min(len(list), l.spans.n) {
		sum += runs[l.spans.at(i).run].refs
	}
	l.touched = sum
}

// bring cuts what a change of kind BlocksEntered brings off the rest of a record.
func bring(rest *protocol.Changes, c *protocol.Change) (m material) {
	m.blocks, rest.Blocks = rest.Blocks[:c.Count], rest.Blocks[c.Count:]
	m.tokens, rest.Tokens = rest.Tokens[:c.Tokens], rest.Tokens[c.Tokens:]
	if c.Covered {
		m.covers, rest.Covers = rest.Covers[:c.Tokens], rest.Covers[c.Tokens:]
	}
	if c.Parent == protocol.NoBlock {
		m.namespace, rest.Namespaces = &rest.Namespaces[0], rest.Namespaces[1:]
	}
	return m
}
