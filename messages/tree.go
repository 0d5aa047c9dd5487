package messages

import "time"

// Match asks the tree for the longest reusable prefixes of a batch, all on the
// same state. It changes nothing but the table of symbols. The tree answers by
// sending the same record back.
type Match struct {
	Epoch uint32
	Items []MatchItem
}

// MatchItem is one prompt to match. The tree reads the slices until it answers;
// the answer's slices are the item's own and are reused by the next match.
type MatchItem struct {
	Namespace  Namespace
	Tokens     []Token          // covered tokens are replaced by symbols in place
	Multimodal []MultimodalItem // valid: disjoint, inside the prompt
	Hold       bool             // keep the symbols until an Apply lets them go
	Limit      int              // match at most so many tokens
	Partial    bool             // the match may end inside a block

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
	// [pool][block], Nowhere for blocks that position L does not attend to.
	IDs   []BlockID
	Pages [][]Location
	// Source is the block that the rest, Matched − Blocks×tokensPerBlock
	// tokens, comes from.
	Source Source
}

// Source is a block to be reused in part.
type Source struct {
	Block  BlockID // NoBlock: none
	Tokens int     // leading tokens of it that match, ≥ 1
	Stored int     // tokens it holds, fewer than a block's if stored in part
	Behind bool    // something is stored behind it
	Pages  []Location
}

// Cursor remembers where in the tree a sequence's last stored block was seen,
// so that the next store need not start at the root: the sequence's tokens lead
// to the block, or end above it. The zero Cursor is the root.
type Cursor struct {
	Block BlockID
	Seen  uint64 // by the tree's count of births; 0 marks the zero Cursor
}

// Apply changes the tree. Its parts are done in the order of the fields. The
// tree answers with Effects: what pools and offloader must do to follow.
type Apply struct {
	Epoch uint32
	// Now is the engine's time: timers that end at or before it act first.
	Now       time.Duration
	Moves     []BlockMove
	Takeovers []BlockID // partial reuse in place: forget, the page stays its sequence's
	Claims    []ClaimItem
	Stores    []StoreItem
	Let       [][]Token // symbols of sequences that ended

	Effects    []Effect
	NextExpiry time.Duration // the earliest timer, or NoExpiry
}

// NoExpiry is the NextExpiry of a tree without timers.
const NoExpiry = time.Duration(1<<63 - 1)

// BlockMove tells where one pool keeps a block from now on; Nowhere if its
// contents were dropped.
type BlockMove struct {
	Pool  PoolID
	Block BlockID
	To    Location
}

// ClaimItem tells that a sequence reuses Blocks, the leading blocks of its
// prompt, whole, and reuses Source in part.
type ClaimItem struct {
	Blocks    []BlockID
	Source    BlockID // NoBlock: none, or taken over
	Session   string
	Retention *Retention
	Prompt    int // tokens
}

// StoreItem offers computed blocks of one sequence. Blocks that start at or
// after From and lie in [0, To) are stored; To inside a block stores that block
// in part.
type StoreItem struct {
	Namespace Namespace
	Session   string
	Tokens    []Token    // at least [0, To)
	From, To  int        // tokens; From at a block boundary
	Tables    [][]PageID // [pool][block], NoPage: none to offer
	Retention *Retention
	Prompt    int // tokens
	// Anew: blocks from this index on that are stored already get the
	// retention anew; those before it had it from this request before.
	Anew int
	// Stay: by pool, blocks that stay in host memory if they are there only,
	// whatever page is offered of them; nil: none.
	Stay   [][]BlockID
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
	Pool     PoolID
	Pages    []PageID  // device pages, of Blocks in order; nil for the Host kinds
	Blocks   []BlockID // consecutive in one prefix
	Depth    int32     // index of Blocks[0] in its prefix
	Priority Priority  // of all Blocks
	// Until is when Priority ends, for pools: from then on it is the default one,
	// without another effect. 0: never.
	Until time.Duration
}

// Forget removes blocks from the tree: those of a selector, or with All every
// one that a pool does not hold for a running sequence.
type Forget struct {
	Epoch    uint32
	Now      time.Duration
	Selector Selector // its tokens are replaced by symbols in place
	All      bool
	Keep     [][]BlockID // with All: by pool, what sequences hold there

	Blocks  int // forgotten in every pool
	Effects []Effect
}

// Locate asks where each pool keeps blocks.
type Locate struct {
	Epoch  uint32
	Blocks []BlockID
	Pages  [][]Location // [pool][i], answered
}

// Snapshot asks for every key of the tree as stored events without ids.
type Snapshot struct {
	Epoch  uint32
	Events []Event
}

// Contents asks for every block of the tree, parents before children, so that
// a host can check the bytes of every page.
type Contents struct {
	Epoch  uint32
	Blocks []Content
}

// Content is one block of the tree. Blocks that no pool holds but that others
// stand behind are among them.
type Content struct {
	Parent    int // index of the block before in Contents.Blocks; −1: none
	Namespace Namespace
	Depth     int        // index in the prefix
	Tokens    []Token    // as the host passed them; fewer than a block's if stored in part
	Covers    []Cover    // by token, of multimodal items; nil if none covers the block
	Pages     []Location // by PoolID
}

// Cover says which item covers a token; the zero Cover is none.
type Cover struct {
	Covered  bool
	Hash     [32]byte
	Position int // of the token in the item
}
