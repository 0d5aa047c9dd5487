package messages

// Request is a pointer to a record that an engine serves: *Admit, *Commit and the
// others of this file but Aborted. No other package can add one.
type Request interface{ request() }

func (*Admit) request()        {}
func (*Commit) request()       {}
func (*Append) request()       {}
func (*Release) request()      {}
func (*Rewind) request()       {}
func (*Fork) request()         {}
func (*ReadTables) request()   {}
func (*Lookup) request()       {}
func (*PinPrefix) request()    {}
func (*UnpinPrefix) request()  {}
func (*Invalidate) request()   {}
func (*Prefetch) request()     {}
func (*Reset) request()        {}
func (*Rebalance) request()    {}
func (*ReadStats) request()    {}
func (*OpenReader) request()   {}
func (*CloseReader) request()  {}
func (*ReadEvents) request()   {}
func (*ReadSnapshot) request() {}
func (*Check) request()        {}
func (*WriteScales) request()  {}
func (*ReadScales) request()   {}

// The engine reads the fields of a request above the blank line and sets those below
// it. It keeps no slice of a request after answering. Err is set if the request as a
// whole was refused; then it has changed nothing. Tag is the host's own, to tell
// answers apart: the engine neither reads nor changes it.

// Admit starts a batch of sequences. The engine claims all pages that any of the
// requests matches before it takes new pages for any of them, so no request of the
// batch evicts what another reuses. It is therefore not first in, first out: a request
// that would fit alone may be refused because a later one of the batch has claimed
// pages. Results has one entry for each request.
type Admit struct {
	Requests []AdmitRequest

	Results []Admitted
	Err     error
	Tag     any
}

// Commit tells the engine which tokens of sequences are computed. Blocks that this
// completes can be reused by other sequences.
type Commit struct {
	Steps []CommitStep

	Results []StepResult
	Err     error
	Tag     any
}

// Append adds sampled tokens to sequences: one step of a batch is one Append.
type Append struct {
	Steps []AppendStep

	Results []StepResult
	Err     error
	Tag     any
}

// Release ends sequences. Their computed tokens stay reusable until they are evicted.
type Release struct {
	Steps []ReleaseStep

	Results []StepResult
	Err     error
	Tag     any
}

// Rewind drops the last tokens of sequences, such as rejected drafts. A result
// has only its Sequence and Err.
type Rewind struct {
	Steps []RewindStep

	Results []StepResult
	Err     error
	Tag     any
}

// Fork makes new sequences that share the pages of others.
type Fork struct {
	Steps []ForkStep

	Results []ForkResult
	Err     error
	Tag     any
}

// ReadTables reads the page tables of sequences.
type ReadTables struct {
	Sequences []SequenceID

	Results []TablesResult
	Err     error
	Tag     any
}

// Lookup asks how many tokens an admission would reuse. It changes nothing.
type Lookup struct {
	Prefix Prefix

	Found Found
	Err   error
	Tag   any
}

// PinPrefix protects the stored blocks of a prefix from eviction until UnpinPrefix.
type PinPrefix struct {
	Prefix Prefix

	Pinned Pinned
	Err    error
	Tag    any
}

// UnpinPrefix ends a pin.
type UnpinPrefix struct {
	Pin PinID

	Err error
	Tag any
}

// Invalidate forgets the stored blocks that a selector names.
type Invalidate struct {
	Selector Selector

	Blocks int
	Err    error
	Tag    any
}

// Prefetch copies those blocks of a prefix to the device that are only in host memory:
// all of them or none.
type Prefetch struct {
	Prefix Prefix

	OnboardedPages int
	Err            error
	Tag            any
}

// Reset forgets every stored block that no running sequence holds.
type Reset struct {
	Err error
	Tag any
}

// Rebalance moves device memory between pools. Fractions has the share of each pool by
// its name; nil lets the engine choose by demand. Pages, if it is not nil, replaces
// Fractions: it has the new number of device pages of each pool, by PoolID, so that the
// pools together can grow and shrink. Pages that running sequences hold may get other
// numbers, so it is sent between steps.
type Rebalance struct {
	Fractions map[string]float64
	Pages     []int

	Rebalanced Rebalanced
	Err        error
	Tag        any
}

// ReadStats reads the state of the engine.
type ReadStats struct {
	Stats Stats
	Err   error
	Tag   any
}

// OpenReader adds a reader of events. It takes the events from now on; a mirror
// begins with a snapshot. The zero ReaderID needs no OpenReader.
type OpenReader struct {
	Reader ReaderID
	Err    error
	Tag    any
}

// CloseReader ends a reader of events. One that is not read and not closed keeps
// the buffer of events full, which costs memory and no other reader anything.
type CloseReader struct {
	Reader ReaderID
	Err    error
	Tag    any
}

// ReadEvents takes the events since the reader's last ReadEvents or ReadSnapshot.
type ReadEvents struct {
	Reader ReaderID

	Batch EventBatch
	Err   error
	Tag   any
}

// ReadSnapshot reads every key of the tree, to start a mirror. The reader's next
// ReadEvents goes on after it.
type ReadSnapshot struct {
	Reader ReaderID

	Batch EventBatch
	Err   error
	Tag   any
}

// Check verifies the invariants of all actors. Err joins everything that is wrong.
type Check struct {
	Err error
	Tag any
}

// Aborted returns a request to a host that is an actor when the request could
// not be served: an actor of the engine failed, or the engine has ended.
type Aborted struct {
	Request any
	Err     error
}

// LayerScale has the divisors of one layer's keys and values before they are stored
// in 8 bits; 1 until WriteScales sets them. The engine only keeps them for those who read the pages.
type LayerScale struct {
	Layer int
	Cross bool // the scales are those of the layer's cross attention
	K, V  float32
}

// WriteScales sets the scales of layers, all or none of them. It changes no page:
// cached elements were divided by the scales of before.
type WriteScales struct {
	Scales []LayerScale

	Err error
	Tag any
}

// ReadScales reads the scales of all layers that have them: self attention first,
// then cross attention, each by layer.
type ReadScales struct {
	Scales []LayerScale
	Err    error
	Tag    any
}
