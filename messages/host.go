package messages

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
}

// MissReason says how a prompt met the cache.
type MissReason string

// The answers to why.
const (
	ReasonDisabled   MissReason = "disabled"    // reuse is off
	ReasonHit        MissReason = "hit"         // everything that is stored was reused
	ReasonCold       MissReason = "cold"        // nothing of the prompt is stored
	ReasonEvicted    MissReason = "evicted"     // a full-attention pool lacks a block
	ReasonWindowHole MissReason = "window_hole" // a limited pool lacks a block
	ReasonNoState    MissReason = "no_state"    // a state pool lacks a checkpoint
)

// PartialReuse says how a partly matching block was reused.
type PartialReuse string

// The ways of partial reuse.
const (
	PartialNone     PartialReuse = "none"
	PartialCopy     PartialReuse = "copy"
	PartialTakeover PartialReuse = "takeover"
)

// PoolReuse is what an admission reused in one pool.
type PoolReuse struct {
	Full         int // pages claimed whole
	Partial      int // 1 if a page was reused in part
	PartialReuse PartialReuse
	Onboarded    int // pages brought from host memory
}

// Admitted answers an AdmitRequest.
type Admitted struct {
	Sequence     SequenceID
	ReusedTokens int // leading tokens whose KV need not be computed
	MissReason   MissReason
	// AttentionTokens is what the attention pools alone would have reused, and
	// Checkpoints are the positions, ascending, at which a commit that ends there
	// makes a checkpoint of the recurrent states. Both are zero for models without
	// recurrent layers.
	AttentionTokens int
	Checkpoints     []int
	Reuse           []PoolReuse // by PoolID
	Tables          Tables      // as they stand after the admission
	Ready           []Ticket    // what must have passed before the pages are read or written
	Err             error       // the refusal, in a batch; nothing else is set then
	// Cross is set with an encoder–decoder model. Reuse and Tables then have
	// the cross pool last, with one table for all beams.
	Cross *CrossAdmitted
}

// CrossAdmitted is what an admission got in the cross pool of an
// encoder–decoder model.
type CrossAdmitted struct {
	// ReusedTokens are the leading encoder tokens whose cross KV is in the
	// pages. If it is all of them the encoder need not run.
	ReusedTokens int
	// Table has a page for each block of encoder tokens. It stays as it is as
	// long as the sequence runs, and its forks and all beams have the same.
	Table []PageID
	Ready []Ticket // what must have passed before the pages are read or written
}

// Tables are page tables: [pool][beam][block], NoPage where the window has passed.
type Tables [][][]PageID

// CommitStep tells that the KV of the first Computed tokens of a sequence is,
// or after ticket After will be, in its pages.
type CommitStep struct {
	Sequence SequenceID
	Computed int
	After    Ticket
	// SeparateRequest makes the commit a use of its own. By default a commit is a
	// part of the request that touched the sequence last, its admission or its
	// append: pages that the commit drops were last used at that request's time.
	SeparateRequest bool
}

// BeamStep extends beam Parent by Token.
type BeamStep struct {
	Parent int
	Token  Token
}

// AppendStep adds sampled tokens to one sequence.
type AppendStep struct {
	Sequence SequenceID
	Tokens   []Token    // with beam width 1
	Beams    []BeamStep // with beams: one for each
	// Computed, when above the sequence's count, is committed in the same step,
	// after the pages are taken; 0 commits nothing.
	Computed int
	After    Ticket // as in CommitStep
}

// StepResult answers one CommitStep or AppendStep.
type StepResult struct {
	Sequence SequenceID
	// NewPages are the pages taken, by PoolID, in block order, one beam after
	// the other, copies on write included.
	NewPages [][]PageID
	// Ready is what must have passed before the step's pages are written to. A
	// step that was refused because a copy failed may have some, too: its other
	// copies still read the pages that the sequence has again.
	Ready []Ticket
	Err   error
}

// ReleaseStep lets a sequence go.
type ReleaseStep struct {
	Sequence SequenceID
	Discard  bool   // store nothing more
	After    Ticket // its kernels read and write the pages until then
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
	Err      error
}

// TablesResult has the page tables of one sequence.
type TablesResult struct {
	Sequence SequenceID
	Tables   Tables // stale with Err
	Err      error
}

// Prefix names the beginning of a prompt, for requests about what is stored.
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

// Found answers a lookup: MatchedTokens = PrimaryTokens + SecondaryTokens.
type Found struct {
	MatchedTokens, PrimaryTokens, SecondaryTokens int
	// AttentionTokens is what the attention pools alone would have matched; 0 for
	// models without recurrent layers.
	AttentionTokens int
}

// Pinned answers a pin.
type Pinned struct {
	Pin    PinID
	Tokens int
}

// Selector names what to forget; exactly one of the three is set.
type Selector struct {
	Session string
	Salt    string
	Prefix  *Prefix // every block whose tokens begin with all of these
}

// PageMove is one page that a rebalance renumbered.
type PageMove struct{ Old, New PageID }

// Rebalanced answers a rebalance.
type Rebalanced struct {
	Pools []PoolInfo
	Moved [][]PageMove // by PoolID: held pages that had to move
}

// PoolInfo describes one pool. The shape of its pages is that of windows.Pool,
// whose documentation says where each row lies in a page.
type PoolInfo struct {
	ID             PoolID
	Name           string
	Kind           string // attention, state or cross
	Window         int    // tokens; 0: no window
	Sink           int    // tokens at the start that never leave the window
	Chunk          int    // tokens of a chunk of attention; 0: none
	KVHeads        int
	Layers         []int
	DType          string // of the elements, as in the configuration
	HeadDim        int    // elements of a key of one head
	ValueDim       int    // elements of a value of one head
	KVFactor       int    // 2: keys and values; 1: one latent vector for both
	Layout         string // HND or NHD
	SideBytes      int    // further bytes of each token in each layer
	TokensPerBlock int
	PageBytes      int64
	PrimaryPages   int
	SecondaryPages int
}

// PageCounts are the three states of the pages of one tier; they add up to Total.
type PageCounts struct{ Total, Used, Cached, Free int }

// PoolCounters count what happened in one pool since the engine started.
type PoolCounters struct {
	AllocatedPages int64 // device pages taken for whatever purpose
	ReusedFull     int64 // pages claimed whole
	ReusedPartial  int64 // one per partial reuse
	Missed         int64 // prompt blocks from the first not reused at all
	Evicted        int64 // device pages taken from their contents
	Offloaded      int64 // of these, contents that went on in host memory
	Dropped        int64 // contents lost by eviction, from either tier
	Onboarded      int64 // pages copied to the device
	BytesOffloaded int64 // copied, whole pages
	BytesOnboarded int64
	// BytesSaved were not copied to host memory at an eviction, because an onboard
	// had left them there; whole pages.
	BytesSaved int64
	// DirtyTakes are the offloads of contents of which no onboard had left a copy
	// in host memory; WaitingTakes those of them whose copy, made then or ahead,
	// was not over, so that who took the page had to wait for it. AheadPages are
	// the copies that were made before anyone asked, of use or not.
	DirtyTakes   int64
	WaitingTakes int64
	AheadPages   int64
	// Checkpoints counts the checkpoints made in a state pool, those included that
	// a release hands over; CheckpointsSkipped counts those for which no page was
	// found.
	Checkpoints        int64
	CheckpointsSkipped int64
}

// PoolStats is the state of one pool.
type PoolStats struct {
	Name               string
	Primary, Secondary PageCounts
	PoolCounters
}

// Stats is the state of the engine.
type Stats struct {
	Requests     int64 // admissions served
	PromptTokens int64
	ReusedTokens int64
	Pools        []PoolStats
	Sequences    int // running now
	Rounds       int64
	Restarts     int64 // of actors that failed
}
