package oracle

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// eventLog is the events that the reader has not taken yet.
type eventLog struct {
	*layout
	events []kvevents.Event
	next   uint64 // the id of the next event
	lost   uint64 // events since the last call that were over the limit
}

// emit appends an event; over the limit the oldest is lost.
func (log *eventLog) emit(e kvevents.Event) {
	if log.cfg.EventLimit == 0 {
		return
	}
	e.ID = log.next
	log.next++
	log.events = append(log.events, e)
	if len(log.events) > log.cfg.EventLimit {
		log.events = log.events[1:]
		log.lost++
	}
}

func (log *eventLog) removed(p *pool, b *block) {
	log.emit(kvevents.Event{
		Type: kvevents.EventRemoved, Pool: messages.PoolID(p.id),
		Hashes: []kvevents.Hash{hash(b.namespace, b.key)},
	})
}

func (log *eventLog) tierChanged(p *pool, b *block, to messages.Tier) {
	log.emit(kvevents.Event{
		Type: kvevents.EventUpdated, Pool: messages.PoolID(p.id), Hash: hash(b.namespace, b.key),
		TierChanged: true, OldTier: messages.Primary + messages.Secondary - to, NewTier: to,
	})
}

// created tells of a pool and its pages.
func (log *eventLog) created(p *pool) {
	log.emit(kvevents.Event{
		Type: kvevents.EventCreated, Pool: messages.PoolID(p.id),
		PrimaryPages: p.Primary, SecondaryPages: p.Secondary,
	})
}

// priorityChanged tells of a block's new priority, in each pool that has it.
func (log *eventLog) priorityChanged(b *block, from messages.Priority) {
	for _, p := range log.pools {
		if b.at[p.id] != nil {
			log.emit(kvevents.Event{
				Type: kvevents.EventUpdated, Pool: messages.PoolID(p.id), Hash: hash(b.namespace, b.key),
				OldPriority: from, NewPriority: b.priority,
			})
		}
	}
}

// stored tells of a run of consecutive blocks, newly stored in pool p.
func (log *eventLog) stored(p *pool, run []*block) {
	if len(run) > 0 {
		log.emit(log.storedEvent(p, run))
	}
}

func (log *eventLog) storedEvent(p *pool, run []*block) kvevents.Event {
	e := kvevents.Event{Type: kvevents.EventStored, Pool: messages.PoolID(p.id)}
	if first := run[0]; first.index > 0 {
		e.HasParent = true
		e.Parent = hash(first.namespace, first.key[:first.index*log.tpb])
	}
	for _, b := range run {
		var tokens []messages.Token
		for _, s := range b.key[b.index*log.tpb:] {
			tokens = append(tokens, s.id)
		}
		e.Blocks = append(e.Blocks, kvevents.StoredBlock{
			Hash: hash(b.namespace, b.key), Tokens: tokens, Tier: b.at[p.id].tier(), Priority: b.priority,
		})
	}
	return e
}

// Events takes the events since the last call.
func (o *Oracle) Events(context.Context) (kvevents.EventBatch, error) {
	if err := o.begin(); err != nil {
		return kvevents.EventBatch{}, err
	}
	batch := kvevents.EventBatch{Events: o.log.events, Lost: o.log.lost, Next: o.log.next}
	o.log.events, o.log.lost = nil, 0
	return batch, nil
}

// Snapshot gives every key of every pool, each as an event of its own; later
// calls of Events go on from here.
func (o *Oracle) Snapshot(context.Context) (kvevents.EventBatch, error) {
	if err := o.begin(); err != nil {
		return kvevents.EventBatch{}, err
	}
	o.log.events, o.log.lost = nil, 0
	batch := kvevents.EventBatch{Snapshot: true, Next: o.log.next}
	for _, p := range o.pools {
		for _, b := range o.tree.byDepth() {
			if b.at[p.id] != nil {
				batch.Events = append(batch.Events, o.log.storedEvent(p, []*block{b}))
			}
		}
	}
	return batch, nil
}

// hash names a block in events. The model's hashes are its own.
func hash(ns messages.Namespace, key []symbol) kvevents.Hash {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v %q %v", ns.Salt, ns.LoRA, ns.HasLoRA, ns.Weights,
		key))
	return kvevents.Hash(sum[:16])
}
