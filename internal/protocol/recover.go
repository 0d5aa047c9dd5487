package protocol

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// The messages of this file rebuild actors after a failure. The coordinator
// reconstructs the pools and the offloader from the owners of their pages: the
// sequences and pins, which it holds itself, and the tree.

// ListLocations asks the tree for every location of every block, in all pools.
// With EmptyTree the tree drops everything first, because it failed in the middle
// of a change.
type ListLocations struct {
	Header
	EmptyTree bool
	// Held are the prompts whose symbols sequences hold. The tree keeps these symbols and
	// those of its blocks, and no others: what a failed request has held, it forgets.
	Held []HeldSymbols

	Blocks []BlockLocation
}

// HeldSymbols is a prompt with tokens that multimodal items cover, as the tree has returned
// it. Lost is answered: the tree has forgotten some of its symbols, and holds none of them.
type HeldSymbols struct {
	Tokens []messages.Token
	Lost   bool
}

// BlockLocation is where one pool keeps one block.
type BlockLocation struct {
	Pool     messages.PoolID
	Block    BlockID
	At       Location
	Depth    int32
	Priority messages.Priority
	Salt     string // of its namespace
	Useless  bool   // as Effect.Useless
	// Front, of a checkpoint on the device, is the page of the next shorter one there. NoPage: there
	// is none, or no policy asks.
	Front messages.PageID
}

// KeptPage is a page that sequences, pins or the tree still use, and what they know
// of it.
type KeptPage struct {
	Page              messages.PageID
	References        int32
	CoveredReferences int32 // chunked prefills among the references
	Block             BlockID
	Pins              int32
	Depth             int32
	Priority          messages.Priority
	Tenant            Tenant
	Useless           bool // as Effect.Useless
	Use               Use  // filled in by the actor: only the failed core knows it
}

// RebuildPool replaces the state of a pool: the pages in Kept are as described, all
// others are free.
type RebuildPool struct {
	Header
	Pages int
	Kept  []KeptPage
	// Follow says of the checkpoints of a pool of states which follow which, as FollowCheckpoint does.
	Follow []PoolOp

	Counts PoolPages
}

// RebuildHost replaces the offloader's record of the host pages of all pools. Kept is
// by PoolID; all other host pages are free.
type RebuildHost struct {
	Header
	Kept [][]KeptPage

	Counts []inspect.TierPages
}
