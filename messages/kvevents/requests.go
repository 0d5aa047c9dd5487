package kvevents

import "github.com/kvactor/kvactor/messages"

// OpenReader adds a reader of events. It takes the events from now on; a mirror
// begins with a snapshot. The zero ReaderID needs no OpenReader.
type OpenReader struct {
	messages.Request // nil: it makes the record a request

	Reader ReaderID
	Err    error
	Tag    any
}

// CloseReader ends a reader of events. One that is not read and not closed keeps
// the buffer of events full, which costs memory and no other reader anything.
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
