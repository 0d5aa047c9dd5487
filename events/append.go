package events

import "github.com/kvactor/kvactor/internal/protocol"

// Append makes events of changes and keeps them; the oldest that do not fit are
// lost. The log keeps slices of the record. While no reader comes back, the changes are
// only counted.
func (l *Log) Append(c *protocol.Changes) {
	if !l.Enabled() || len(c.List) == 0 {
		return
	}
	if l.blind {
		// Blocks that leave make no event, and cost no reader a pool's creation.
		if n := c.Events(); n > 0 {
			l.dropAll(n)
			l.verify()
		}
		return
	}
	l.apply(c)
	// Once for many changes and not for each event.
	l.trim()
	if l.absent() {
		l.forgetUnread()
	}
	l.verify()
}

// apply makes the events of changes, and keeps account of the blocks.
func (l *Log) apply(c *protocol.Changes) {
	rest := *c
	for i := range c.List {
		change := &c.List[i]
		// A record is read in order: a block that has left may have its id given to
		// another one later in the same record.
		switch change.Kind {
		case protocol.BlocksEntered:
			l.enter(&rest, change)
		case protocol.BlocksLeft:
			l.blocks.Leave(change)
		case protocol.EverythingForgot:
			l.push(eventOf(change))
		default:
			l.change(change)
		}
	}
}
