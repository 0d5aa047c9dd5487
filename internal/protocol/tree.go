package protocol

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// Match asks the tree for the longest reusable prefix of each prompt of a batch, all
// on the same state. It changes only the tree's table of symbols.
type Match struct {
	Header
	Items []MatchItem
}

// MatchItem is one prompt to match. The slices of the answer belong to the item, and
// the next match writes to them again.
type MatchItem struct {
	Namespace  messages.Namespace
	Tokens     []messages.Token          // covered tokens are replaced by symbols in place
	Multimodal []messages.MultimodalItem // valid: disjoint, inside the prompt
	// keep the symbols until an Apply has them in ReleasedSymbols
	KeepSymbols bool
	Limit       int  // match at most so many tokens
	Partial     bool // the match may end inside a block
	// Cross makes it a match of the cross pools alone. Tokens are then the whole
	// input of the encoder, padded with zeros to whole blocks, and Namespace.Encoder
	// is its key. Without Cross the match is of all other pools.
	Cross bool

	InTree *BlocksInTree // answered, if it is not nil

	// Matched is the number of tokens that can be reused. Their first Blocks blocks
	// are whole.
	Matched, Blocks int
	// Reach is the number of leading tokens, at most Limit, that lead into a block
	// which some pool holds. Lacking is set if a full-attention pool lacks
	// a block of [0, Reach).
	Reach   int
	Lacking bool
	// Lacks counts, by pool, the blocks that position Reach attends to and that the
	// pool does not hold. All are 0 if everything that is stored was matched.
	Lacks []int
	// IDs are the blocks [0, Blocks). Pages says where each pool keeps them, as
	// [pool][block]: Nowhere for blocks that position Matched does not attend to,
	// and for all blocks of pools that the match does not concern.
	IDs   []BlockID
	Pages [][]Location
	// Cursor is of the last of IDs, for the stores of the sequence: what was matched need
	// not be compared again. The zero Cursor if there is none.
	Cursor Cursor
	// Source is the block that the other Matched − Blocks×tokensPerBlock tokens
	// come from.
	Source Source

	// The rest is answered only in a tree with state pools. Checkpoint is the block
	// that ends at Matched, and CheckpointPages says where each state pool keeps its
	// checkpoint, by pool.
	Checkpoint      BlockID // NoBlock: Matched is 0
	CheckpointPages []Location
	// Attention is what the match would be without the states, and AttentionSource
	// the block that it would end inside, if it does; AttentionWhole is the match
	// without states and without partial reuse.
	Attention       int
	AttentionSource Source
	AttentionWhole  int
}

// Source is a block that is reused in part.
type Source struct {
	Block       BlockID // NoBlock: none
	Tokens      int     // leading tokens of it that match, ≥ 1
	Stored      int     // tokens it holds, fewer than a block's if stored in part
	HasChildren bool    // other blocks follow it
	Pages       []Location
}

// Cursor names the node of the tree at which a sequence's last matched or stored block
// was found, so that the next store need not start at the root. The tokens of the
// sequence lead to that block or end above it. The zero Cursor is the root.
type Cursor struct {
	Block      BlockID
	Generation uint64 // the tree's creation count when the block was seen; 0 marks the zero Cursor
}

// Apply changes the tree. Its parts are applied in the order of the fields. The
// answer is Effects: what the pools and the offloader must do to agree with the tree.
type Apply struct {
	Header
	// Now is the engine's time. Timers that end at or before it are applied first.
	Now   time.Duration
	Moves []BlockMove
	// blocks to forget whose page a sequence has taken over for partial reuse
	Takeovers       []BlockID
	Claims          []ClaimItem
	Stores          []StoreItem
	ReleasedSymbols [][]messages.Token // symbols of sequences that ended

	// Unsaved is how many contents have left the tree that a store would have taken, without
	// those that host memory has displaced.
	Unsaved    int
	Effects    []Effect
	NextExpiry time.Duration // the earliest timer, or NoExpiry
}

// NoExpiry is the NextExpiry of a tree without timers.
const NoExpiry = time.Duration(1<<63 - 1)

// BlockMove says where one pool keeps a block from now on: Nowhere if its contents
// were dropped.
type BlockMove struct {
	Pool  messages.PoolID
	Block BlockID
	To    Location
	// Displaced, to Nowhere, says that host memory has displaced the contents, which a store may
	// have got then.
	Displaced bool
}

// ClaimItem says that a sequence reuses all of Blocks, the leading blocks of its
// prompt, and a part of Source.
type ClaimItem struct {
	Blocks    []BlockID
	Source    BlockID // NoBlock: none, or taken over
	Session   string
	Retention *messages.Retention
	Prompt    int // tokens
}

// StoreItem offers computed blocks of one sequence. The tree stores the blocks in
// [From, To). If To is inside a block, it stores that block in part. Pages that cache another
// block stay with that block, as if they were not offered.
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
	// read. Tokens and Namespace are those of a Cross match. Prompt is the length of
	// the encoder's input without the padding, which events leave out. Without Cross
	// the offer is to all other pools.
	Cross  bool
	Cursor Cursor // in: of any block of the sequence; out: of the last whole one stored

	// OnHost makes Tables those of host pages, whose contents have come from a
	// store: blocks get the default priority, and no session and retention changes.
	OnHost bool

	// FindEnd asks for the block of exactly the tokens [0, To), as it is after the
	// store, whoever stored it. HandOver, with FindEnd, makes pages of state pools the
	// checkpoints of that block in the pools that lack one: by pool, NoPage for none.
	// Neither goes with Cross. In a tree without pools of tokens HandOver is all that is
	// offered: it stores the block, unless it has no page and the block is not there.
	FindEnd  bool
	HandOver []messages.PageID
	End      StoredEnd // answered with FindEnd
}

// StoredEnd is the block that ends where a store does.
type StoredEnd struct {
	Block    BlockID           // NoBlock: no pool holds such a block
	Priority messages.Priority // of the block or, without pools of tokens, of the one to be stored
	Lacks    []messages.PoolID // state pools without a checkpoint of it, before HandOver
}

// EffectKind is the kind of an Effect.
type EffectKind uint8

// The kinds of effects.
const (
	// For pools.
	Attach       EffectKind = iota // Pages cache Blocks from now on
	Detach                         // Pages cache nothing any more; Blocks are forgotten
	Reprioritize                   // the contents of Pages have Priority
	Appraise                       // Useless says whether no match can use the contents of Pages
	// For the offloader, which knows its pages by pool and block.
	HostYield        // device pages replaced the host contents of Blocks
	HostForget       // Blocks are forgotten, contents and clean copies
	HostReprioritize // the host contents of Blocks have Priority
	HostAttach       // host pages Pages have the contents of Blocks, as LoadPages wrote them
	HostAppraise     // Useless says whether no match can use the host contents of Blocks
	// For pools of states, which know pages.
	Follow // Pages[1:] are the next longer checkpoints behind the one of Pages[0], NoPage: behind none
)

// Effect is one change to apply to consecutive blocks. Its slices belong to the tree
// and the sequences and are valid until the tree's next message.
type Effect struct {
	Kind     EffectKind
	Pool     messages.PoolID
	Pages    []messages.PageID // device pages, of Blocks in order; nil for the Host kinds
	Blocks   []BlockID         // consecutive in one prefix; none of Follow
	Depth    int32             // index of Blocks[0] in its prefix
	Priority messages.Priority // of all Blocks
	// Useless, of Attach, Appraise and their Host kinds: no match can use the contents, for
	// want of what other pools hold.
	Useless bool
}

// Forget removes blocks from the tree: those that Selector names, or with All every
// block that is not in Keep.
type Forget struct {
	Header
	Now      time.Duration
	Selector messages.Selector // its tokens are replaced by symbols in place
	Cross    bool              // the Prefix of Selector is that of a Cross match
	All      bool
	Keep     [][]BlockID // with All: by pool, the blocks that sequences hold there

	Blocks  int // the number of blocks that are forgotten in every pool
	Unsaved int // as Apply.Unsaved
	Effects []Effect
}

// Locate asks where each pool keeps the given blocks.
type Locate struct {
	Header
	Blocks []BlockID

	Pages    [][]Location // [pool][i]
	Saveable []bool       // a store would take contents of the block
}

// Snapshot asks for all blocks of the tree and every key of theirs, as changes of
// the kinds BlocksEntered and BlocksStored.
type Snapshot struct {
	Header
	Keys *Changes
}

// Contents asks for every block of the tree, parents before children.
type Contents struct {
	Header
	Blocks []Content
}
