package protocol

import "github.com/kvactor/kvactor/messages"

// DryRunAdmit asks what an Admit of the same requests would be refused for, and
// changes nothing.
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

// JoinSnapshot is a ReadSnapshot of one side to which the keys of the other are
// added. If that side has told of anything since they were read, at Since, they
// are Stale: then there is no Batch, and nothing has been taken from the log.
type JoinSnapshot struct {
	Reader messages.ReaderID
	Keys   []*Changes
	Pool   messages.PoolID // one of the other side
	Since  uint64

	Batch messages.EventBatch
	Stale bool
	Err   error
}

// LoseSequences gives sequences up that the other side of an encoder–decoder engine
// has lost: every call about them is refused from now on, until they are released.
// Those that do not run, or are lost already, are passed over.
type LoseSequences struct {
	Sequences []messages.SequenceID
	Err       error
}

// ReadSequences lists the handles of all running sequences, lost ones included.
type ReadSequences struct {
	Sequences []messages.SequenceID
	Err       error
}
