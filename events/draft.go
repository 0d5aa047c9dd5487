package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Draft is a batch of events on its way to a reader. It refers to records, which do not change,
// so Name runs on any goroutine, while the log goes on.
type Draft struct {
	batch kvevents.EventBatch // events without blocks and hashes
	spans []span
	of    []int // how many of spans each event has
}

// draft makes an empty draft for a reader, with room for n events.
func (l *Log) draft(r *reader, n int) *Draft {
	events := make([]kvevents.Event, 0, n)
	return &Draft{batch: kvevents.EventBatch{Engine: l.engine, Events: events, Lost: l.missed(r)}}
}

// event adds an event with the spans that are added after it.
func (d *Draft) event(e *kept, id uint64) {
	out := kvevents.Event{ID: id, Pool: e.pool}
	switch {
	case e.created:
		out.Type = kvevents.EventCreated
		out.PrimaryPages, out.SecondaryPages = e.pages.Primary, e.pages.Secondary
	case e.kind == protocol.BlocksStored:
		out.Type = kvevents.EventStored
	case e.kind == protocol.BlocksRemoved:
		out.Type = kvevents.EventRemoved
	case e.kind == protocol.TierChanged:
		out.Type, out.TierChanged = kvevents.EventUpdated, true
		// There are two tiers, so the old one is the other.
		out.OldTier, out.NewTier = messages.Secondary-e.tier, e.tier
	case e.kind == protocol.PriorityChanged:
		out.Type = kvevents.EventUpdated
		out.OldPriority, out.NewPriority = e.oldPriority, e.priority
	case e.kind == protocol.EverythingForgot:
		out.Type = kvevents.EventCleared
	}
	d.batch.Events = append(d.batch.Events, out)
	d.of = append(d.of, 0)
}

// span adds blocks to the last event.
func (d *Draft) span(s span) {
	d.spans = append(d.spans, s)
	d.of[len(d.of)-1]++
}

// keys adds what the pools of a tree hold as stored events.
func (d *Draft) keys(l *Log, c *protocol.Changes) {
	for i := range c.List {
		change := &c.List[i]
		if change.Kind != protocol.BlocksStored {
			continue
		}
		if !change.Joined {
			d.event(&kept{kind: change.Kind, pool: change.Pool}, 0)
		}
		d.span(l.span(change))
	}
}

// Name gives the events their blocks and returns the batch, which is the reader's.
func (d *Draft) Name() kvevents.EventBatch {
	spans := d.spans
	for i := range d.batch.Events {
		d.complete(&d.batch.Events[i], spans[:d.of[i]])
		spans = spans[d.of[i]:]
	}
	return d.batch
}

// complete gives an event its blocks.
func (d *Draft) complete(e *kvevents.Event, spans []span) {
	switch e.Type {
	case kvevents.EventStored:
		d.stored(e, spans)
	case kvevents.EventRemoved:
		for i := range spans {
			for _, r := range spans[i].records() {
				e.Hashes = append(e.Hashes, r.hash)
			}
		}
	case kvevents.EventUpdated:
		e.Hash = spans[0].last.hash
	case kvevents.EventCreated, kvevents.EventCleared:
	default:
		panic(fmt.Sprintf("events: a draft of an event of type %q", e.Type))
	}
}

// stored gives a stored event its blocks. The reader gets tokens of its own, which it may
// change.
func (d *Draft) stored(e *kvevents.Event, spans []span) {
	e.Blocks = []kvevents.StoredBlock{}
	for i := range spans {
		s := &spans[i]
		for _, r := range s.records() {
			if len(e.Blocks) == 0 {
				begin(e, r)
			}
			e.Blocks = append(e.Blocks, kvevents.StoredBlock{
				Hash: r.hash, Tokens: slices.Clone(r.tokens), Tier: s.tier, Priority: s.priority,
				Covers: slices.Clone(r.covers),
			})
		}
	}
}

// begin says where the blocks of a stored event begin: behind another block, or in a namespace.
func begin(e *kvevents.Event, first *record) {
	switch {
	case first.parent != nil:
		e.Parent, e.HasParent = first.parent.hash, true
	case first.namespace != nil:
		namespace := *first.namespace // the reader may write to it
		e.Namespace = &namespace
	}
}
