package messages

// Request is a pointer to a record that an engine serves: *Admit, *Commit and the
// others of this file but Aborted, and those of packages inspect and kvevents, whose
// records embed a nil Request. An engine refuses any other record that embeds one.
type Request interface{ request() }

func (*Admit) request()       {}
func (*Commit) request()      {}
func (*Append) request()      {}
func (*Release) request()     {}
func (*Rewind) request()      {}
func (*Fork) request()        {}
func (*ReadTables) request()  {}
func (*Lookup) request()      {}
func (*PinPrefix) request()   {}
func (*UnpinPrefix) request() {}
func (*Invalidate) request()  {}
func (*Prefetch) request()    {}
func (*Reset) request()       {}
func (*SetWeights) request()  {}
func (*Rebalance) request()   {}
func (*WriteScales) request() {}
func (*ReadScales) request()  {}

// The engine reads the fields of a request above the blank line and sets those below
// it. It keeps no slice of a request after answering. Err is set if the request as a
// whole was refused; then it has changed nothing. Tag is the host's own, to tell
// answers apart: the engine neither reads nor changes it.

// Admit starts a batch of sequences. The engine claims all pages that any of the
// requests matches before it takes new pages for any of them, so no request of the
// batch evicts what another reuses. It is therefore not first in, first out: a request
// that would fit alone may be refused because a later one of the batch has claimed
// pages. Results has one entry for each request; its errors are ErrBadRequest,
// ErrTooLong, ErrNotSupported and ErrOutOfPages. The cost is linear in the tokens of the
// prompts, with the constant of a memory comparison.
type Admit struct {
	Requests []AdmitRequest

	Results []Admitted
	Err     error
	Tag     any
}

// Commit tells the engine which tokens of sequences are computed. Blocks that this
// completes can be reused by other sequences. A commit never lacks pages: a chunked
// prompt has reserved those of its next chunks.
type Commit struct {
	Steps []CommitStep

	Results []StepResult
	Err     error
	Tag     any
}

// Append adds sampled tokens to sequences: one step of a batch is one Append. A step that
// finds no page (ErrOutOfPages) leaves its sequence as it was; the others are served.
// The cost is one message to each pool that pages are taken from.
type Append struct {
	Steps []AppendStep

	Results []StepResult
	Err     error
	Tag     any
}

// Release ends sequences. Their computed tokens stay reusable until they are evicted. A
// sequence that is lost (ErrSequenceLost in its result) is released as well.
type Release struct {
	Steps []ReleaseStep

	Results []StepResult
	Err     error
	Tag     any
}

// Rewind drops the last tokens of sequences, such as rejected drafts. A result
// has only its Sequence and Err: ErrBadRequest for tokens of the prompt, ErrNotSupported
// for tokens that would bring back blocks which a window has passed, and for beams.
type Rewind struct {
	Steps []RewindStep

	Results []StepResult
	Err     error
	Tag     any
}

// Fork makes new sequences that share the pages of others. A page is copied when one of
// its sequences first writes to it. The prompt must be committed (ErrBadRequest), and
// the beam width 1 (ErrNotSupported).
type Fork struct {
	Steps []ForkStep

	Results []ForkResult
	Err     error
	Tag     any
}

// ReadTables reads the page tables of sequences. A host that follows StepResult.Placed
// needs it only after a rebalance.
type ReadTables struct {
	Sequences []SequenceID

	Results []TablesResult
	Err     error
	Tag     any
}

// Lookup asks how many tokens an admission would reuse, and on which tier they are. It
// changes nothing, not even when a block was last used.
type Lookup struct {
	Prefix Prefix

	Found Found
	// MissReason is what an admission would say of why it reuses no more.
	MissReason MissReason
	Err        error
	Tag        any
}

// PinPrefix protects the stored whole blocks of a prefix from eviction until UnpinPrefix,
// on the tier where each is. Pins of one block add up.
type PinPrefix struct {
	Prefix Prefix

	Pinned Pinned
	Err    error
	Tag    any
}

// UnpinPrefix ends a pin. ErrUnknownPin: there is none of that number.
type UnpinPrefix struct {
	Pin PinID

	Err error
	Tag any
}

// Invalidate forgets the stored blocks that a selector names: Blocks is their number.
// Running sequences that it names keep their pages, and store nothing from now on.
//
// A store keeps what it has, and fetches find it. An adapter that is loaded again under its name,
// beside a store, needs another name for the engine, such as one with its version, or an epoch of
// the weights.
type Invalidate struct {
	Selector Selector

	Blocks int
	Err    error
	Tag    any
}

// Prefetch copies those blocks of a prefix to the device that are only in host memory: all of them
// or none (ErrOutOfPages). OnboardedPages counts over all pools. The answer does not wait for the
// copies; an admission that reuses the blocks gets their tickets. All blocks that it finds are used
// by it, and with the eviction policy forecast they are awaited: they are evicted after all others
// of their priority, until they are used.
type Prefetch struct {
	Prefix Prefix

	OnboardedPages int
	Err            error
	Tag            any
}

// Reset forgets every stored block that no running sequence holds, also pinned ones. With
// Running it forgets all of them: running sequences keep their pages, and store nothing from
// now on.
type Reset struct {
	Running bool

	Err error
	Tag any
}

// SetWeights says that the weights of the model have changed: what is computed from now on is of
// another epoch. All that is stored is forgotten as by a Reset with Running. Nothing of another
// epoch is matched, imported, or fetched from a store, which keeps what it has: an epoch that
// comes back finds it again. The epoch that the engine has already changes nothing.
type SetWeights struct {
	Epoch string

	Err error
	Tag any
}

// Rebalance moves device memory between pools. Fractions has the share of each pool by
// its name; with nil the engine chooses by demand. Pages, if it is not nil, replaces
// Fractions: it has the new number of device pages of each pool, by PoolID, so that the
// pools together can grow and shrink. Pages that running sequences hold may get other
// numbers, so it is sent between steps. It waits for the kernels and copies that use the
// pages. ErrOutOfPages: a pool would have fewer pages than are held or reserved;
// ErrNotSupported: the memory of a pool that would change is the host's.
type Rebalance struct {
	Fractions map[string]float64
	Pages     []int

	Rebalanced Rebalanced
	Err        error
	Tag        any
}

// Aborted returns a request to a host that is an actor when the request could
// not be served: an actor of the engine failed, or the engine has ended.
type Aborted struct {
	Request any
	Err     error
}

// LayerScale has the divisors of one layer's keys and values before they are stored in 8 bits; 1
// until WriteScales sets them. The engine only keeps them for those who read the pages.
type LayerScale struct {
	Layer int
	Cross bool // the scales are those of the layer's cross attention
	K, V  float32
}

// WriteScales sets the scales of layers, all or none of them. Scales belong to the bytes that were
// divided by them: if one changes, all that is stored is forgotten as by SetWeights, and scales
// that come back find again what a store has of them. ErrNotSupported: sequences run.
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
