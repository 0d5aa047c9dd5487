package messages

import "time"

// AdmitRequest starts one sequence.
type AdmitRequest struct {
	Namespace  Namespace
	Tokens     []Token          // the prompt, not empty
	Multimodal []MultimodalItem // in any order
	Retention  *Retention       // nil: none
	Session    string           // empty: none
	// BeamWidth is the number of beams, each with a page table; 0 means 1.
	BeamWidth int
	// ChunkTokens is the length of a chunk of a chunked prefill, a multiple of the
	// tokens per block: pools with a window then hold pages only for the window and
	// one chunk. 0 takes the pages of the whole prompt at once.
	ChunkTokens int
	// Encoder is the whole input of the encoder, EncoderItems the multimodal items
	// in it, and EncoderRetention the retention of its cross KV, with ranges of
	// encoder tokens. Encoder–decoder models need Encoder, others refuse it.
	Encoder          []Token
	EncoderItems     []MultimodalItem
	EncoderRetention *Retention
	// Fetch is how long the admission may wait for contents from the engine's store
	// while others are served; 0: not at all. Only the methods Admit and AdmitBatch of
	// an engine fetch.
	Fetch time.Duration
	// Readmitted says that the request was admitted before and released to be admitted
	// again, as a host does that preempts. It is served like any other, but counted in
	// inspect.Stats.Readmissions alone, so that hit rates are those of requests.
	Readmitted bool
	// StoredOnly admits what is stored of the prompt, whole blocks, and nothing else: the
	// sequence is that prefix, and it takes no page but for what comes from host memory and
	// for recurrent states. It holds the prefix until it is released, and may be continued by
	// appends. If nothing is stored there is no sequence: its handle is 0, with no error.
	// Beams, chunks and encoders are refused.
	StoredOnly bool
}

// MissReason says why an admission did not reuse more of its prompt.
type MissReason string

// The values of MissReason.
const (
	ReasonDisabled   MissReason = "disabled"    // reuse is off
	ReasonHit        MissReason = "hit"         // everything that was stored was reused
	ReasonCold       MissReason = "cold"        // nothing of the prompt was stored
	ReasonEvicted    MissReason = "evicted"     // a pool of full attention lacked a block
	ReasonWindowHole MissReason = "window_hole" // a pool with a window lacked a block
	ReasonNoState    MissReason = "no_state"    // a state pool lacks a checkpoint
)

// PartialReuse says how a block that matched in part was reused.
type PartialReuse string

// The ways of partial reuse.
const (
	PartialNone     PartialReuse = "none"     // there was none
	PartialCopy     PartialReuse = "copy"     // its tokens were copied to a page of the sequence
	PartialTakeover PartialReuse = "takeover" // the sequence got its page, and the block was forgotten
)

// PoolReuse counts what an admission reused in one pool.
type PoolReuse struct {
	Full         int // pages reused whole
	Partial      int // 1 if a page was reused in part
	PartialReuse PartialReuse
	Onboarded    int // pages copied from host memory
}

// Admitted answers an AdmitRequest.
type Admitted struct {
	Sequence     SequenceID
	ReusedTokens int // leading tokens whose KV need not be computed
	MissReason   MissReason
	// AttentionTokens is what the attention pools alone would have reused or, without
	// any, how far the prompt leads to stored blocks. Checkpoints are the positions,
	// ascending, at which a commit that ends there makes a checkpoint of the recurrent
	// states. Both are zero for models without recurrent layers.
	AttentionTokens int
	Checkpoints     []int
	Reuse           []PoolReuse // by PoolID
	Tables          Tables      // as they stand after the admission
	Ready           []Ticket    // must have passed before the pages are read or written
	Err             error       // the refusal; nothing else is set then
	// Cross is set with an encoder–decoder model. Reuse and Tables then have
	// the cross pool last, with one table for all beams.
	Cross *CrossAdmitted
}

// CrossAdmitted is what an admission got in the cross pool of an
// encoder–decoder model.
type CrossAdmitted struct {
	// ReusedTokens is the number of encoder tokens whose cross KV is in the pages: all of
	// them, and the encoder need not run, or 0.
	ReusedTokens int
	// Table has a page for each block of encoder tokens. It stays as it is as
	// long as the sequence runs, and its forks and all beams have the same.
	Table []PageID
	Ready []Ticket // must have passed before the pages are read or written
}

// Tables are page tables, as [pool][beam][block]. Blocks that the window has passed have
// NoPage.
type Tables [][][]PageID

// CommitStep says that the keys and values of the first Computed tokens of a sequence
// are in its pages, or will be when ticket After has passed.
type CommitStep struct {
	Sequence SequenceID
	Computed int
	After    Ticket
	// SeparateRequest makes the commit a use of its own. By default a commit is a
	// part of the request that touched the sequence last, its admission or its
	// append: pages that the commit drops were last used at that request's time.
	SeparateRequest bool
}

// BeamStep makes one beam: the beam Parent of before, extended by Token.
type BeamStep struct {
	Parent int
	Token  Token
}

// AppendStep adds sampled tokens to one sequence.
type AppendStep struct {
	Sequence SequenceID
	Tokens   []Token    // for beam width 1
	Beams    []BeamStep // for larger beam widths: one for each beam
	// DraftStates, of models with recurrent layers, asks for so many pages in each state pool,
	// for the states after single tokens. They follow the working page in the table until the
	// next Append. With 2, and the tokens a, b and c that are not computed, the kernel
	//
	//	reads entry 0   the working page: the state before a
	//	writes entry 1  the state after a
	//	writes entry 2  the state after b
	//	writes entry 0  the state after c
	//
	// It may have fewer tokens, but not more: the step is refused then. After a commit or a
	// rewind the state is in the entry of the last token that is left, which the next Append
	// makes the working page. With 0 the kernel writes one state, that after all tokens.
	DraftStates int
	// Computed, if not 0, commits in the same step, after its pages are taken.
	Computed int
	After    Ticket // as in CommitStep
}

// StepResult answers one CommitStep or AppendStep.
type StepResult struct {
	Sequence SequenceID
	// NewPages are the pages that the step has taken, by PoolID, in block order, one
	// beam after the other, copies on write included.
	NewPages [][]PageID
	// Placed says for each of NewPages where it is in the page tables, and which
	// page it replaces. The entries of one pool are in the order of NewPages; behind them are
	// the two pages of states that change places in a table.
	Placed []PlacedPage
	// Ready must have passed before the step's pages are written to. A step that was
	// refused because a copy on write failed may have some too: its other copies
	// still read the pages that the sequence holds again.
	Ready []Ticket
	Err   error
}

// PlacedPage is a page that a step has put into the page table of a beam.
type PlacedPage struct {
	Pool  PoolID
	Beam  int // 0 for sequences of beam width 1
	Block int // index in the table
	Page  PageID
	// Replaced is the page that was there before: other sequences share it, and the
	// engine copies to Page what was computed in it (copy on write). NoPage if the
	// block is new. With beams it is the page of the beam's new parent.
	Replaced PageID
}

// ReleaseStep ends one sequence.
type ReleaseStep struct {
	Sequence SequenceID
	// Computed, if it is not 0, commits so many tokens first, as a CommitStep would, in the
	// same message. It takes no pages: neither those of a next chunk nor of a checkpoint,
	// but the working page of a recurrent sequence becomes one. A number that a
	// CommitStep could not have is ErrBadRequest, and the sequence goes on.
	Computed int
	// do not store what the sequence has computed since its last commit; not with Computed
	Discard bool
	After   Ticket // the host's kernels may use the pages until it has passed
	// AnswerTokens is the length of the answer if another engine generates it, as with
	// disaggregated prefill; 0: the tokens that were appended. Only the eviction policy
	// forecast uses it.
	AnswerTokens int
}

// RewindStep drops the last Tokens tokens of one sequence.
type RewindStep struct {
	Sequence SequenceID
	Tokens   int
}

// ForkStep makes Count new sequences that share the pages of one.
type ForkStep struct {
	Sequence SequenceID
	Count    int
}

// ForkResult answers one ForkStep.
type ForkResult struct {
	Sequence SequenceID   // that was forked
	Forks    []SequenceID // the new ones; empty with Err
	// Working and Ready are set for models with recurrent layers. Working has, for each
	// of Forks, its own page in each state pool, by PoolID, NoPage in other pools. Ready
	// must have passed before kernels write to these or to the page of Sequence itself. A
	// step that was refused because a copy failed may have some too: its other copies still
	// read that page.
	Working [][]PageID
	Ready   []Ticket
	Err     error
}

// TablesResult has the page tables of one sequence.
type TablesResult struct {
	Sequence SequenceID
	Tables   Tables // stale with Err
	Err      error
}

// Prefix is the beginning of a prompt, for requests about stored blocks.
type Prefix struct {
	Namespace  Namespace
	Tokens     []Token
	Multimodal []MultimodalItem
	// Encoder and EncoderItems are as in AdmitRequest. With an encoder–decoder
	// model a prefix names what is stored for a prompt behind this encoder
	// input; one without Tokens names the cross KV of the input itself.
	Encoder      []Token
	EncoderItems []MultimodalItem
}

// Found answers a lookup. MatchedTokens = PrimaryTokens + SecondaryTokens.
type Found struct {
	MatchedTokens, PrimaryTokens, SecondaryTokens int
	// AttentionTokens is that of an admission; 0 for models without recurrent layers.
	AttentionTokens int
	// StoredTokens is how many tokens more a fetch of the prefix could make match: those
	// that only the engine's store has. It is 0 unless the store was asked.
	StoredTokens int
}

// Pinned answers a pin.
type Pinned struct {
	Pin    PinID
	Tokens int
}

// Selector selects blocks to forget: those of a session, of a salt, of an adapter or of a
// prefix. Exactly one of them is set, but that a Salt beside an adapter limits it to that salt.
type Selector struct {
	Session string
	Salt    string
	LoRA    string // the adapter, under every salt; valid if HasLoRA
	HasLoRA bool
	Prefix  *Prefix // every block whose tokens begin with all of these
}

// Names tells whether a selector of a salt or an adapter selects a namespace.
func (s *Selector) Names(ns *Namespace) bool {
	return (s.Salt == "" || ns.Salt == s.Salt) && (!s.HasLoRA || ns.HasLoRA && ns.LoRA == s.LoRA)
}

// PageMove is one page whose number a rebalance has changed.
type PageMove struct{ Old, New PageID }

// Rebalanced answers a rebalance.
type Rebalanced struct {
	Pools []PoolInfo
	Moved [][]PageMove // by PoolID, held pages whose numbers have changed
}

// PoolInfo describes one pool. The shape of its pages is that of windows.Pool,
// whose documentation says where each row lies in a page. The bytes of a page, and which pages a
// sequence holds, depend on the fields with a tag, which is their name in errors: engines that hand
// sequences over have the same.
type PoolInfo struct {
	ID             PoolID
	Name           string
	Kind           string `shape:"kind"`   // attention, state or cross
	Window         int    `shape:"window"` // tokens; 0: no window
	Sink           int    `shape:"sink"`   // tokens at the start that never leave the window
	Chunk          int    `shape:"chunk"`  // tokens of a chunk of attention; 0: none
	KVHeads        int    `shape:"kv_heads"`
	Layers         []int  `shape:"layers"`
	DType          string `shape:"dtype"`      // of the elements, as in the configuration
	HeadDim        int    `shape:"head_dim"`   // elements of a key of one head
	ValueDim       int    `shape:"value_dim"`  // elements of a value of one head
	KVFactor       int    `shape:"kv_factor"`  // 2: keys and values; 1: one latent vector for both
	Layout         string `shape:"layout"`     // HND or NHD
	SideBytes      int    `shape:"side_bytes"` // further bytes of each token in each layer
	TokensPerBlock int    `shape:"tokens_per_block"`
	PageBytes      int64  `shape:"page_bytes"`
	PrimaryPages   int
	SecondaryPages int
}
