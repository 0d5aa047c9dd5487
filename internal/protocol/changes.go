package protocol

import "github.com/kvactor/kvactor/messages"

// Changes are what messages to the tree have changed of what the pools hold, as
// plain values in the order in which it happened. The tree makes a record and gives it to
// its followers, the event log and the index of the store's actor. They may keep its slices,
// and no one changes a record from then on:
//
//	tree ── Changes ──▶ event log, index of the store's actor
//
// The tree names a block by its id, which another block may have after BlocksLeft.
// Until then the log knows by BlocksEntered what the block is.
type Changes struct {
	List []Change

	// What changes of kind BlocksEntered bring with them, one after the other.
	Blocks     []BlockID            // Count of each change
	Tokens     []messages.Token     // Tokens of each change, as the host passed them
	Covers     []messages.Cover     // as many for each change that is Covered
	Namespaces []messages.Namespace // one for each change without a Parent
}

// ChangeKind says what has happened to the blocks of a Change.
type ChangeKind uint8

// The kinds of changes.
const (
	BlocksEntered    ChangeKind = iota // new blocks are in the tree; no event
	BlocksLeft                         // the blocks are not in the tree any more; no event
	BlocksStored                       // Pool holds them from now on
	BlocksRemoved                      // Pool holds them no longer
	TierChanged                        // Pool keeps the one block in Tier, not in the other
	PriorityChanged                    // the one block's priority in Pool was OldPriority
	EverythingForgot                   // the tree is empty after it forgot all blocks
)

// Change is one change of Count consecutive blocks of one prefix.
type Change struct {
	Kind    ChangeKind
	Joined  bool // of the same event as the change before that makes one
	Covered bool // BlocksEntered: a multimodal item covers some of the tokens

	Tier        messages.Tier
	Priority    messages.Priority // of all the blocks
	OldPriority messages.Priority

	Pool   messages.PoolID
	Last   BlockID // the last of the blocks
	Count  int32
	Parent BlockID // BlocksEntered: the block before the first; NoBlock: the prefix begins here
	// BlocksEntered: of all the blocks; if it is one block, perhaps fewer than a block's
	Tokens int32
	// Padding, of BlocksEntered, is how many tokens at the end are none of the
	// host's: they are hashed, but no reader gets them.
	Padding int32
}

// MakesEvent tells whether readers get an event of the change's own.
func (c *Change) MakesEvent() bool { return c.Kind >= BlocksStored && !c.Joined }

// Events counts the events that readers get of the changes.
func (c *Changes) Events() int {
	n := 0
	for i := range c.List {
		if c.List[i].MakesEvent() {
			n++
		}
	}
	return n
}
