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
	if e.Type == kvevents.EventUpdated {
		e.Hash = l.blocks.Of(c.Last).Extra.hash
		return
	}
	l.run = slices.Grow(l.run[:0], int(c.Count))[:c.Count]
	r := l.blocks.Of(c.Last)
	for i := range slices.Backward(l.run) {
		l.run[i] = r
		r = r.Parent
	}
	if e.Type == kvevents.EventRemoved {
		e.Hashes = slices.Grow(e.Hashes, len(l.run))
		for _, r := range l.run {
			e.Hashes = append(e.Hashes, r.Extra.hash)
		}
		return
	}
	if first := l.run[0]; len(e.Blocks) == 0 && first.Parent != nil {
		e.Parent, e.HasParent = first.Parent.Extra.hash, true
	} else if len(e.Blocks) == 0 {
		e.Namespace = first.Namespace
	}
	e.Blocks = slices.Grow(e.Blocks, len(l.run))
	for _, r := range l.run {
		e.Blocks = append(e.Blocks, kvevents.StoredBlock{
			Hash: r.Extra.hash, Tokens: r.Tokens[:r.Extra.shown], Tier: c.Tier, Priority: c.Priority,
			Covers: r.Covers,
		})
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
