package oracle

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// hash names a block in events. The model's hashes are its own.
func hash(ns messages.Namespace, key []symbol) kvevents.Hash {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v %v", ns.Salt, ns.LoRA, ns.HasLoRA, key))
	return kvevents.Hash(sum[:16])
}

// emit appends an event; over the limit the oldest is lost.
func (o *Oracle) emit(e kvevents.Event) {
	if o.cfg.EventLimit == 0 {
		return
	}
	e.ID = o.nextEvent
	o.nextEvent++
	o.events = append(o.events, e)
	if len(o.events) > o.cfg.EventLimit {
		o.events = o.events[1:]
		o.lost++
	}
}

func (o *Oracle) emitRemoved(p *pool, b *block) {
	o.emit(kvevents.Event{
		Type: kvevents.EventRemoved, Pool: messages.PoolID(p.id),
		Hashes: []kvevents.Hash{hash(b.namespace, b.key)},
	})
}

func (o *Oracle) emitTier(p *pool, b *block, to messages.Tier) {
	o.emit(kvevents.Event{
		Type: kvevents.EventUpdated, Pool: messages.PoolID(p.id), Hash: hash(b.namespace, b.key),
		TierChanged: true, OldTier: messages.Primary + messages.Secondary - to, NewTier: to,
	})
}

// emitStored tells of a run of consecutive blocks, newly stored in pool p.
func (o *Oracle) emitStored(p *pool, run []*block) {
	if len(run) > 0 {
		o.emit(o.storedEvent(p, run))
	}
}

func (o *Oracle) storedEvent(p *pool, run []*block) kvevents.Event {
	e := kvevents.Event{Type: kvevents.EventStored, Pool: messages.PoolID(p.id)}
	if first := run[0]; first.index > 0 {
		e.HasParent = true
		e.Parent = hash(first.namespace, first.key[:first.index*o.tpb])
	}
	for _, b := range run {
		var tokens []messages.Token
		for _, s := range b.key[b.index*o.tpb:] {
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
	batch := kvevents.EventBatch{Events: o.events, Lost: o.lost, Next: o.nextEvent}
	o.events, o.lost = nil, 0
	return batch, nil
}

// Snapshot gives every key of every pool, each as an event of its own; later
// calls of Events go on from here.
func (o *Oracle) Snapshot(context.Context) (kvevents.EventBatch, error) {
	if err := o.begin(); err != nil {
		return kvevents.EventBatch{}, err
	}
	o.events, o.lost = nil, 0
	batch := kvevents.EventBatch{Snapshot: true, Next: o.nextEvent}
	for _, p := range o.pool {
		for _, b := range o.byDepth() {
			if b.at[p.id] != nil {
				batch.Events = append(batch.Events, o.storedEvent(p, []*block{b}))
			}
		}
	}
	return batch, nil
}
