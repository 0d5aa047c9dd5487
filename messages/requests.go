package messages

// The requests of hosts: what the facade sends to the engine and what a host
// that is an actor sends itself. The engine reads the fields above the blank
// line and fills those below; it keeps no slice of a request after answering.
// Err is set if the request as a whole was refused, which has changed nothing.

// Admit takes a batch of sequences in: all matches are claimed before any page
// is taken. Results has one entry for each request.
type Admit struct {
	Requests []AdmitRequest

	Results []Admitted
	Err     error
}

// Commit makes computed tokens of sequences reusable.
type Commit struct {
	Steps []CommitStep

	Results []StepResult
	Err     error
}

// Append is one engine step: it adds tokens to many sequences.
type Append struct {
	Steps []AppendStep

	Results []StepResult
	Err     error
}

// Release lets sequences go.
type Release struct {
	Steps []ReleaseStep

	Results []StepResult
	Err     error
}

// Rewind drops the last tokens of sequences, such as rejected drafts. A result
// has only its Sequence and Err.
type Rewind struct {
	Steps []RewindStep

	Results []StepResult
	Err     error
}

// Fork makes new sequences that share the pages of others.
type Fork struct {
	Steps []ForkStep

	Results []ForkResult
	Err     error
}

// ReadTables reads the page tables of sequences.
type ReadTables struct {
	Sequences []SequenceID

	Results []TablesResult
	Err     error
}

// Lookup asks what an admission would reuse; it changes nothing.
type Lookup struct {
	Prefix Prefix

	Found Found
	Err   error
}

// PinPrefix protects the stored blocks of a prefix from eviction.
type PinPrefix struct {
	Prefix Prefix

	Pinned Pinned
	Err    error
}

// UnpinPrefix ends a pin.
type UnpinPrefix struct {
	Pin PinID

	Err error
}

// Invalidate forgets what a selector names.
type Invalidate struct {
	Selector Selector

	Blocks int
	Err    error
}

// Prefetch brings what host memory holds of a prefix to the device.
type Prefetch struct {
	Prefix Prefix

	OnboardedPages int
	Err            error
}

// Reset forgets everything that no running sequence holds.
type Reset struct {
	Err error
}

// Rebalance moves device memory between pools; nil Fractions: by demand.
type Rebalance struct {
	Fractions map[string]float64

	Rebalanced Rebalanced
	Err        error
}

// ReadStats reads the state of the engine.
type ReadStats struct {
	Stats Stats
	Err   error
}

// OpenReader adds a reader of events. It takes the events from now on; a mirror
// begins with a snapshot. The zero ReaderID needs no OpenReader.
type OpenReader struct {
	Reader ReaderID
	Err    error
}

// CloseReader ends a reader of events. One that is not read and not closed keeps
// the buffer of events full, which costs memory and no other reader anything.
type CloseReader struct {
	Reader ReaderID
	Err    error
}

// ReadEvents takes the events since the reader's last ReadEvents or ReadSnapshot.
type ReadEvents struct {
	Reader ReaderID

	Batch EventBatch
	Err   error
}

// ReadSnapshot reads every key of the tree, to start a mirror. The reader's next
// ReadEvents goes on after it.
type ReadSnapshot struct {
	Reader ReaderID

	Batch EventBatch
	Err   error
}

// ReadContents reads every block of the tree with its pages.
type ReadContents struct {
	Blocks []Content
	Err    error
}

// Check runs every invariant; Err joins all that is wrong.
type Check struct {
	Err error
}

// Aborted returns a request to a host that is an actor when the request could
// not be served: an actor of the engine failed, or the engine has ended.
type Aborted struct {
	Request any
	Err     error
}
