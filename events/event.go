package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// eventOf is the event that a change makes, without its blocks and its id.
func eventOf(c *protocol.Change) kvevents.Event {
	e := kvevents.Event{Pool: c.Pool}
	switch c.Kind {
	case protocol.BlocksStored:
		e.Type = kvevents.EventStored
	case protocol.BlocksRemoved:
		e.Type = kvevents.EventRemoved
	case protocol.TierChanged:
		e.Type, e.TierChanged = kvevents.EventUpdated, true
		// There are two tiers, so the old one is the other.
		e.OldTier, e.NewTier = messages.Secondary-c.Tier, c.Tier
	case protocol.PriorityChanged:
		e.Type = kvevents.EventUpdated
		e.OldPriority, e.NewPriority = c.OldPriority, c.Priority
	case protocol.EverythingForgot:
		e.Type = kvevents.EventCleared
	default:
		panic(fmt.Sprintf("events: a change of kind %d makes no event", c.Kind))
	}
	return e
}

// extend adds the blocks of a change to its event, by what the log knows of them now: the tree
// may give their ids to others later. The event shares the tokens of the records, which do not
// change.
func (l *Log) extend(e *kvevents.Event, c *protocol.Change) {
	r, n := l.blocks.Of(c.Last), int(c.Count)
	switch e.Type {
	case kvevents.EventUpdated:
		e.Hash = r.Extra.hash
	case kvevents.EventRemoved:
		at := len(e.Hashes)
		e.Hashes = slices.Grow(e.Hashes, n)[:at+n]
		for i := range slices.Backward(e.Hashes[at:]) {
			e.Hashes[at+i], r = r.Extra.hash, r.Parent
		}
	default:
		at, namespace := len(e.Blocks), r.Namespace
		e.Blocks = slices.Grow(e.Blocks, n)[:at+n]
		for i := range slices.Backward(e.Blocks[at:]) {
			e.Blocks[at+i] = kvevents.StoredBlock{
				Hash: r.Extra.hash, Tokens: r.Tokens[:r.Extra.shown], Tier: c.Tier, Priority: c.Priority,
				Covers: r.Covers,
			}
			r = r.Parent
		}
		switch {
		case at > 0:
		case r != nil:
			e.Parent, e.HasParent = r.Extra.hash, true
		default:
			e.Namespace = namespace
		}
	}
}

// batch makes a batch of events, all of which is the reader's: it may write to what it gets.
func (l *Log) batch(r *reader, list []kvevents.Event) kvevents.EventBatch {
	for i := range list {
		e := &list[i]
		e.Hashes, e.Blocks = slices.Clone(e.Hashes), slices.Clone(e.Blocks)
		if e.Namespace != nil {
			namespace := *e.Namespace
			e.Namespace = &namespace
		}
		for k := range e.Blocks {
			b := &e.Blocks[k]
			b.Tokens, b.Covers = slices.Clone(b.Tokens), slices.Clone(b.Covers)
		}
	}
	return kvevents.EventBatch{Engine: l.engine, Events: list, Lost: l.missed(r)}
}
