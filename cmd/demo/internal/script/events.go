package script

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// eventHead opens every event. Those of a snapshot, which are not in the stream,
// carry the id of the last event that they include: the next one follows it.
type eventHead struct {
	ID   uint64             `json:"id"`
	Type kvevents.EventType `json:"type"`
}

type createdEvent struct {
	eventHead
	Pool           string `json:"pool"`
	PrimaryPages   int    `json:"primary_pages"`
	SecondaryPages int    `json:"secondary_pages"`
}

type storedEvent struct {
	eventHead
	Pool   string        `json:"pool"`
	Parent *string       `json:"parent"` // null at the start of a prompt
	Blocks []storedBlock `json:"blocks"`
}

type storedBlock struct {
	Hash     string            `json:"hash"`
	Tokens   []messages.Token  `json:"tokens"`
	Tier     string            `json:"tier"`
	Priority messages.Priority `json:"priority"`
}

type removedEvent struct {
	eventHead
	Pool   string   `json:"pool"`
	Hashes []string `json:"hashes"`
}

// updatedEvent has either tiers or priorities, old and new.
type updatedEvent struct {
	eventHead
	Pool     string                `json:"pool"`
	Hash     string                `json:"hash"`
	Tier     *[2]string            `json:"tier,omitempty"`
	Priority *[2]messages.Priority `json:"priority,omitempty"`
}

// eventAnswers gives the events of a batch as they are written.
func eventAnswers(batch *kvevents.EventBatch, pools []messages.PoolInfo) []any {
	out := make([]any, 0, len(batch.Events))
	for i := range batch.Events {
		e := &batch.Events[i]
		h := eventHead{ID: e.ID, Type: e.Type}
		if batch.Snapshot {
			h.ID = batch.Next - 1 // there was an event: the key was stored
		}
		if e.Type == kvevents.EventCleared {
			out = append(out, h)
			continue
		}
		out = append(out, eventAnswer(e, h, pools[e.Pool].Name))
	}
	return out
}

func eventAnswer(e *kvevents.Event, h eventHead, pool string) any {
	switch e.Type {
	case kvevents.EventCreated:
		return createdEvent{h, pool, e.PrimaryPages, e.SecondaryPages}
	case kvevents.EventStored:
		return stored(e, h, pool)
	case kvevents.EventRemoved:
		r := removedEvent{h, pool, make([]string, len(e.Hashes))}
		for i, hash := range e.Hashes {
			r.Hashes[i] = hexOf(hash)
		}
		return r
	default:
		u := updatedEvent{eventHead: h, Pool: pool, Hash: hexOf(e.Hash)}
		if e.TierChanged {
			u.Tier = &[2]string{e.OldTier.String(), e.NewTier.String()}
		} else {
			u.Priority = &[2]messages.Priority{e.OldPriority, e.NewPriority}
		}
		return u
	}
}

func stored(e *kvevents.Event, h eventHead, pool string) storedEvent {
	s := storedEvent{eventHead: h, Pool: pool, Blocks: make([]storedBlock, len(e.Blocks))}
	if e.HasParent {
		parent := hexOf(e.Parent)
		s.Parent = &parent
	}
	for i, b := range e.Blocks {
		s.Blocks[i] = storedBlock{hexOf(b.Hash), b.Tokens, b.Tier.String(), b.Priority}
	}
	return s
}
