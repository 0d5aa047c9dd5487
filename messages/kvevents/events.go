// Package kvevents has the events of a KV cache: one for each change of what the cache holds.
// A host that keeps a mirror of the cache, such as a router that sends a prompt to the engine
// that has most of it, reads a snapshot and then the events. An engine serves the requests of
// this package like those of package messages; package events has a mirror.
package kvevents

import (
	"encoding/hex"
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// EventType is the kind of an event.
type EventType string

// The types of events.
const (
	EventCreated EventType = "created"
	EventStored  EventType = "stored"
	EventRemoved EventType = "removed"
	EventUpdated EventType = "updated"
	EventCleared EventType = "cleared"
)

// Hash identifies a block in events. It is a hash of the namespace and of all tokens
// up to the end of the block. The engine itself never compares hashes.
type Hash [16]byte

// MarshalText returns the hash in hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return &messages.Refusal{Code: messages.ErrBadRequest,
			Message: fmt.Sprintf("hash of %d hexadecimal digits, not %d", len(text), hex.EncodedLen(len(h)))}
	}
	// A text with a wrong digit must not leave half of a hash.
	var read Hash
	if _, err := hex.Decode(read[:], text); err != nil {
		return &messages.Refusal{Code: messages.ErrBadRequest, Message: "hash: " + err.Error()}
	}
	*h = read
	return nil
}

// StoredBlock is a block in a stored event.
type StoredBlock struct {
	Hash Hash `json:"hash"`
	// as the host passed them; blocks of one batch may share memory
	Tokens   []messages.Token  `json:"tokens"`
	Tier     messages.Tier     `json:"tier"`
	Priority messages.Priority `json:"priority"`
	// Covers says for each token which multimodal item covers it; nil if none
	// covers any token of the block. JSON leaves it out.
	Covers []messages.Cover `json:"-"`
}

// Event is one change of what the cache holds. Which fields are set depends on Type;
// in JSON the others are left out.
type Event struct {
	ID   uint64          `json:"id"` // consecutive from 0
	Type EventType       `json:"type"`
	Pool messages.PoolID `json:"pool"` // all but cleared

	PrimaryPages   int `json:"primary_pages,omitzero"`   // created
	SecondaryPages int `json:"secondary_pages,omitzero"` // created

	Parent    Hash `json:"parent,omitzero"`     // stored: the block before
	HasParent bool `json:"has_parent,omitzero"` // stored: false at the start of a prompt
	// Namespace is that of the prompt, in stored events without a parent; nil is the
	// zero Namespace. Blocks with a parent have their parent's. JSON leaves it out,
	// since a salt is a secret.
	Namespace *messages.Namespace `json:"-"`
	Blocks    []StoredBlock       `json:"blocks,omitempty"` // stored: consecutive blocks

	Hashes []Hash `json:"hashes,omitempty"` // removed

	Hash Hash `json:"hash,omitzero"` // updated
	// updated: the tier changed, else the priority
	TierChanged bool              `json:"tier_changed,omitzero"`
	OldTier     messages.Tier     `json:"old_tier,omitzero"`
	NewTier     messages.Tier     `json:"new_tier,omitzero"`
	OldPriority messages.Priority `json:"old_priority,omitzero"`
	NewPriority messages.Priority `json:"new_priority,omitzero"`
}

// ReaderID names a reader of events. Each takes the events at its own pace and
// learns how many of them it has lost. The zero ReaderID is open from the start.
type ReaderID uint32

// EventBatch is the answer to one read of events.
type EventBatch struct {
	// Engine is the id of the engine, which no other engine has: IDs of events are
	// consecutive within it, and start from 0 again in another.
	Engine string  `json:"engine,omitzero"`
	Events []Event `json:"events"`        // oldest first
	Lost   uint64  `json:"lost,omitzero"` // events dropped unread since the reader's last call
	// Snapshot is set in the answer to ReadSnapshot. Events are then all stored
	// blocks, as stored events without IDs, and Next is the ID of the event that
	// follows.
	Snapshot bool   `json:"snapshot,omitzero"`
	Next     uint64 `json:"next,omitzero"`
}

// OpenReader adds a reader of events. It takes the events from now on; a mirror
// begins with a snapshot. The zero ReaderID needs no OpenReader.
type OpenReader struct {
	messages.Request // nil: it makes the record a request

	Reader ReaderID
	Err    error
	Tag    any
}

// CloseReader ends a reader of events. One that is not read and not closed keeps
// the buffer of events full, which costs memory and no other reader anything. When all
// readers have missed the buffer four times over, and 65,536 events, nothing is kept for
// them until one reads a snapshot.
type CloseReader struct {
	messages.Request // nil: it makes the record a request

	Reader ReaderID
	Err    error
	Tag    any
}

// ReadEvents takes the events since the reader's last ReadEvents or ReadSnapshot. The
// hashes of stored blocks are computed now, on a goroutine of the engine's own: the cost
// is linear in their tokens.
type ReadEvents struct {
	messages.Request // nil: it makes the record a request

	Reader ReaderID

	Batch EventBatch
	Err   error
	Tag   any
}

// ReadSnapshot reads every key of the tree, to start a mirror. The reader's next
// ReadEvents goes on after it.
type ReadSnapshot struct {
	messages.Request // nil: it makes the record a request

	Reader ReaderID

	Batch EventBatch
	Err   error
	Tag   any
}
