package protocol

import "github.com/kvactor/kvactor/messages"

// DryRunAdmit validates the requests of an Admit and checks that pages are
// available for them. It changes nothing.
type DryRunAdmit struct {
	Requests []messages.AdmitRequest

	Results []messages.Admitted // only Err is set
	Err     error
}

// ReadKeys reads the keys of one side of an encoder–decoder engine, for a snapshot
// of both.
type ReadKeys struct {
	Keys []*Changes
	Next uint64 // the id that the next event of either side gets
	Err  error
}

// JoinSnapshot is a ReadSnapshot of one side that includes the Keys of the other.
// Since is the ID of the next event when Keys were read. If the other side has
// published an event after that, the answer is Stale: there is no Batch, and the
// log keeps its events.
type JoinSnapshot struct {
	Reader messages.ReaderID
	Keys   []*Changes
	Pool   messages.PoolID // one of the other side
	Since  uint64

	Batch messages.EventBatch
	Stale bool
	Err   error
}

// LoseSequences marks sequences lost that the other side of an encoder–decoder
// engine has lost. Every request about a lost sequence is refused until it is
// released. Sequences that do not run, or are lost already, are skipped.
type LoseSequences struct {
	Sequences []messages.SequenceID
	Err       error
}

// ReadSequences lists the handles of all running sequences, including lost ones.
type ReadSequences struct {
	Sequences []messages.SequenceID
	Err       error
}
