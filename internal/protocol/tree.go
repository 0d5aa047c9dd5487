package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// Match asks the tree for the longest reusable prefixes of a batch, all on the
// same state. It changes nothing but the table of symbols. The tree answers by
// sending the same record back.
type Match struct {
	Header
	Items []MatchItem
}

// MatchItem is one prompt to match. The tree reads the slices until it answers;
// the answer's slices are the item's own and are reused by the next match.
type MatchItem struct {
	Namespace   messages.Namespace
	Tokens      []messages.Token          // covered tokens are replaced by symbols in place
	Multimodal  []messages.MultimodalItem // valid: disjoint, inside the prompt
	KeepSymbols bool                      // keep the symbols until an Apply lets them go
	Limit       int                       // match at most so many tokens
	Partial     bool                      // the match may end inside a block
	// Cross makes it a match of the cross pools alone. Tokens are then the whole
	// input of the encoder, padded with zeros to whole blocks, and Namespace.Encoder
	// is its key. Without it the match is of all pools but those.
	Cross bool

	// Matched is L: tokens that can be reused. Blocks of them are whole.
	Matched, Blocks int
	// Reach is the number of leading tokens, at most Limit, that lead into a
	// block which some pool holds; Lacking tells that a full-attention pool
	// lacks a block of [0, Reach).
	Reach   int
	Lacking bool
	// Lacks are, by pool, the blocks that position Reach attends to and that the
	// pool does not hold; all 0 when everything that is known was matched.
	Lacks []int
	// IDs are the blocks of [0, Blocks); Pages where each pool keeps them:
	// [pool][block], Nowhere for blocks that position L does not attend to, and
	// for all blocks in pools that the match does not concern.
	IDs   []BlockID
	Pages [][]messages.Location
	// Source is the block that the rest, Matched − Blocks×tokensPerBlock
	// tokens, comes from.
	Source Source
}

// Source is a block to be reused in part.
type Source struct {
	Block       BlockID // NoBlock: none
	Tokens      int     // leading tokens of it that match, ≥ 1
	Stored      int     // tokens it holds, fewer than a block's if stored in part
	HasChildren bool    // something is stored behind it
	Pages       []messages.Location
}

// Cursor remembers where in the tree a sequence's last stored block was seen,
// so that the next store need not start at the root: the sequence's tokens lead
// to the block, or end above it. The zero Cursor is the root.
type Cursor struct {
	Block      BlockID
	Generation uint64 // the tree's creation count when the block was seen; 0 marks the zero Cursor
}

// Apply changes the tree. Its parts are done in the order of the fields. The
// tree answers with Effects: what pools and offloader must do to follow.
type Apply struct {
	Header
	// Now is the engine's time: timers that end at or before it act first.
	Now             time.Duration
	Moves           []BlockMove
	Takeovers       []BlockID // partial reuse in place: forget, the page stays its sequence's
	Claims          []ClaimItem
	Stores          []StoreItem
	ReleasedSymbols [][]messages.Token // symbols of sequences that ended

	Effects    []Effect
	NextExpiry time.Duration // the earliest timer, or NoExpiry
}

// NoExpiry is the NextExpiry of a tree without timers.
const NoExpiry = time.Duration(1<<63 - 1)

// BlockMove tells where one pool keeps a block from now on; Nowhere if its
// contents were dropped.
type BlockMove struct {
	Pool  messages.PoolID
	Block BlockID
	To    messages.Location
}

// ClaimItem tells that a sequence reuses Blocks, the leading blocks of its
// prompt, whole, and reuses Source in part.
type ClaimItem struct {
	Blocks    []BlockID
	Source    BlockID // NoBlock: none, or taken over
	Session   string
	Retention *messages.Retention
	Prompt    int // tokens
}

// StoreItem offers computed blocks of one sequence. Blocks that start at or
// after From and lie in [0, To) are stored; To inside a block stores that block
// in part.
type StoreItem struct {
	Namespace messages.Namespace
	Session   string
	Tokens    []messages.Token    // at least [0, To)
	From, To  int                 // tokens; From at a block boundary
	Tables    [][]messages.PageID // [pool][block], NoPage: none to offer
	Retention *messages.Retention
	Prompt    int // tokens
	// RetentionFrom is a block index. Blocks from it on that are stored already
	// get Retention; blocks before it have got it from this request already.
	RetentionFrom int
	// KeepOnHost lists, by pool, blocks that stay in host memory if they are only
	// there, even if Tables offers a page of them; nil means none.
	KeepOnHost [][]BlockID
	// Cross makes it an offer to the cross pools alone, and only their Tables are
	// read. Tokens and Namespace are those of a Cross match, Prompt is the length of
	// the encoder's input without the padding, which no reader hears of. Without it
	// the offer is to all pools but those.
	Cross  bool
	Cursor Cursor // in: of any block of the sequence; out: of the last whole one stored
}

// EffectKind says what a pool or the offloader must do.
type EffectKind uint8

// The effects.
const (
	// For pools.
	Attach       EffectKind = iota // Pages cache Blocks from now on
	Detach                         // Pages cache nothing any more, Blocks are forgotten
	Reprioritize                   // the contents of Pages have Priority
	// For the offloader, which knows its pages by pool and block.
	HostYield        // the device took the place of the contents of Blocks
	HostForget       // Blocks are forgotten, with contents and clean copies
	HostReprioritize // the host contents of Blocks have Priority
)

// Effect is one thing to do for a run of blocks. The slices belong to the tree
// and the sequences; they stay as they are until the tree's next message.
type Effect struct {
	Kind     EffectKind
	Pool     messages.PoolID
	Pages    []messages.PageID // device pages, of Blocks in order; nil for the Host kinds
	Blocks   []BlockID         // consecutive in one prefix
	Depth    int32             // index of Blocks[0] in its prefix
	Priority messages.Priority // of all Blocks
	// Until is when Priority ends, for pools: from then on it is the default one,
	// without another effect. 0: never.
	Until time.Duration
}

// Forget removes blocks from the tree: those of a selector, or with All every
// one that a pool does not hold for a running sequence.
type Forget struct {
	Header
	Now      time.Duration
	Selector messages.Selector // its tokens are replaced by symbols in place
	Cross    bool              // the Prefix of Selector is one of a Cross match
	All      bool
	Keep     [][]BlockID // with All: by pool, what sequences hold there

	Blocks  int // forgotten in every pool
	Effects []Effect
}

// Locate asks where each pool keeps blocks.
type Locate struct {
	Header
	Blocks []BlockID
	Pages  [][]messages.Location // [pool][i], answered
}

// Snapshot asks for all blocks of the tree and every key of theirs, as changes of
// the kinds BlocksEntered and BlocksStored.
type Snapshot struct {
	Header
	Keys *Changes
}

// Contents asks for every block of the tree, parents before children, so that
// a host can check the bytes of every page.
type Contents struct {
	Header
	Blocks []messages.Content
}
