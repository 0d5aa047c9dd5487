package messages

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

// StoredBlock is a block in a stored event.
type StoredBlock struct {
	Hash     Hash
	Tokens   []Token // as the host passed them; blocks of one batch may share memory
	Tier     Tier
	Priority Priority
}

// Event is one change of what the cache holds. Which fields are set depends on Type.
type Event struct {
	ID   uint64 // consecutive from 0
	Type EventType
	Pool PoolID // all but cleared

	PrimaryPages, SecondaryPages int // created

	Parent    Hash          // stored: the block before
	HasParent bool          // stored: false at the start of a prompt
	Blocks    []StoredBlock // stored: consecutive blocks

	Hashes []Hash // removed

	Hash        Hash // updated
	TierChanged bool // updated: the tier changed, else the priority
	OldTier     Tier
	NewTier     Tier
	OldPriority Priority
	NewPriority Priority
}

// ReaderID names a reader of events. Each takes the events at its own pace and
// learns how many of them it has lost. The zero ReaderID is open from the start.
type ReaderID uint32

// EventBatch is what a reader of events gets.
type EventBatch struct {
	// Engine is the id of the engine, which no other engine has: ids of events are
	// consecutive within it, and start from 0 again in another.
	Engine string
	Events []Event // oldest first
	Lost   uint64  // events dropped since the reader's last call
	// Snapshot is set by a snapshot: Events are then the keys of the tree as
	// stored events without ids, and Next is the id of the event that follows.
	Snapshot bool
	Next     uint64
}
