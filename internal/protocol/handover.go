package protocol

import (
	"github.com/kvactor/kvactor/messages"
)

// The messages of this file hand a sequence over to another engine. An export forks the
// sequence, reads the fork's pages into staging memory and releases the fork. An import
// takes pages for a sequence that no host knows yet, writes them from staging memory,
// and commits what they hold.
//
//	source                                      receiver
//	Fork                                        BeginImport        takes pages
//	DescribeSequence ─── tokens, retention ───▶ TransferPages …    staging to device
//	TransferPages …  ─── page bytes ──────────▶ Commit             blocks are stored
//	Release          ◀── acknowledgement ────── DescribeSequence   tables and tickets

// PagePlace names a page of a sequence: the page of a block in a pool. In a state pool it
// is the working page, as block 0.
type PagePlace struct {
	Pool  messages.PoolID
	Block int
}

// SequenceState is what another engine must know of a sequence beside its pages.
type SequenceState struct {
	Namespace messages.Namespace
	Session   string
	Retention *messages.Retention
	Tokens    []messages.Token // as the host passed them
	Covers    []messages.Cover // by token; nil if no item covers any
	Prompt    int
	Computed  int
	NoStore   bool // the sequence offers nothing to the tree
	// Of an encoder–decoder model, whose input the key of the namespace describes.
	Input          int // tokens of the encoder's input
	InputRetention *messages.Retention
	InputNoStore   bool // the input is not offered to the tree
}

// DescribeSequence reads what a sequence is, its tables, and what its pages wait for.
type DescribeSequence struct {
	messages.Request
	Sequence messages.SequenceID
	// ToWrite asks for a sequence whose pages are yet to be written: its prompt may not be
	// computed.
	ToWrite bool

	State  SequenceState
	Tables messages.Tables
	Ready  []messages.Ticket
	Err    error
}

// TransferPages copies whole pages of a sequence between the device and staging memory,
// which is host memory of a pool of the device that is no pool of the engine. Its caller
// waits for the ticket, reads or writes the staging memory, and uses it again.
type TransferPages struct {
	messages.Request
	Sequence messages.SequenceID
	In       bool  // to the device
	Staging  int32 // the device's handle of the staging pool
	Items    []TransferItem

	Ticket messages.Ticket
	Err    error
}

// TransferItem is one page and the host page of the staging pool.
type TransferItem struct {
	PagePlace
	Slot messages.PageID
}

// BeginImport makes a sequence that has pages for all its tokens. Pages whose contents the
// engine has on the device already are shared. The others have to be written before a
// Commit makes the tokens computed. Until then no host is told of the sequence.
type BeginImport struct {
	messages.Request
	Prompt   messages.AdmitRequest // Tokens are those of the whole sequence
	Length   int                   // of the prompt, in tokens
	Computed int                   // tokens whose contents come; at least Length
	NoStore  bool
	// InputNoStore says the same of the encoder's input.
	InputNoStore bool
	// OwnWeights says that the contents were computed by the engine's weights, whatever the
	// namespace says.
	OwnWeights bool

	Sequence messages.SequenceID
	// Missing says which of the pages that a hand-over carries have to be written, in
	// the order of coordinator.Config.CarriedPages.
	Missing []bool
	Err     error
}

// CopyPages asks the offloader to order the copies of a TransferPages. It answers when
// they are ordered.
type CopyPages struct {
	Header
	In      bool
	Staging int32
	Copies  []StagedCopy

	Ticket messages.Ticket // when the copies are over
	Failed bool            // the device has refused some of them
}

// StagedCopy is one device page and the host page of the staging pool.
type StagedCopy struct {
	Pool messages.PoolID
	Page messages.PageID
	Slot messages.PageID
}

// ReadTokens asks the tree for tokens as the host has passed them, and for the items that
// cover them.
type ReadTokens struct {
	Header
	Tokens []messages.Token // answered in place: covered tokens are symbols until then

	Covers []messages.Cover
}

// Fetch and the requests of this file are calls that observers outside of the engine are told
// of: metrics and traces. They do not know this package, and ask each for its name by a
// method that they declare for themselves.

// Observed returns the name of the call and its refusal.
func (m *Fetch) Observed() (call string, refusal error) { return "fetch", m.Err }

// Observed returns the name of the call and its refusal.
func (m *DescribeSequence) Observed() (call string, refusal error) { return "export", m.Err }

// Observed returns the name of the call and its refusal.
func (m *TransferPages) Observed() (call string, refusal error) { return "export", m.Err }

// Observed returns the name of the call and its refusal.
func (m *BeginImport) Observed() (call string, refusal error) { return "import", m.Err }
