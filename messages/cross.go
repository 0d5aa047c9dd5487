package messages

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

// Rehearse asks what an Admit of the same requests would be refused for, and
// changes nothing.
type Rehearse struct {
	Requests []AdmitRequest

	Results []Admitted // only Err is set
	Err     error
}

// ReadKeys reads the keys of one side of an encoder–decoder engine, as events
// that have no names yet, for a snapshot of both.
type ReadKeys struct {
	Keys []Event
	Next uint64 // the id that the next event of either side gets
	Err  error
}

// JoinSnapshot is a ReadSnapshot of one side to which the keys of the other are
// added. If that side has told of anything since they were read, at Since, they
// are Stale: then there is no Batch, and nothing has been taken from the log.
type JoinSnapshot struct {
	Keys  []Event
	Pool  PoolID // one of the other side
	Since uint64

	Batch EventBatch
	Stale bool
	Err   error
}

// LoseSequences gives sequences up that the other side of an encoder–decoder engine
// has lost: every call about them is refused from now on, until they are released.
// Those that do not run, or are lost already, are passed over.
type LoseSequences struct {
	Sequences []SequenceID
	Err       error
}

// ReadSequences lists the handles of all running sequences, lost ones included.
type ReadSequences struct {
	Sequences []SequenceID
	Err       error
}
