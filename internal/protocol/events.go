package protocol

import "github.com/kvactor/kvactor/messages"

// Event is a messages.Event on its way from the tree to a reader. Its blocks are
// not hashed yet: Spans name them, and the event log computes from them the
// Blocks, Hashes, Hash and Parent of the Event that a reader gets.
type Event struct {
	messages.Event
	Spans []Span
}

// EventBatch is a messages.EventBatch of events that are not hashed yet.
type EventBatch struct {
	Events   []Event
	Lost     uint64
	Snapshot bool
	Next     uint64
}

// WrapEvents returns events that have no blocks to be hashed, or whose hashes are
// known already, in the form in which the event log keeps them.
func WrapEvents(list []messages.Event) []Event {
	wrapped := make([]Event, len(list))
	for i := range list {
		wrapped[i].Event = list[i]
	}
	return wrapped
}
