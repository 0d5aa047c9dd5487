package sequence

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Origin is what the admission of a sequence says of it. Nothing changes it.
type Origin struct {
	Namespace messages.Namespace
	Tenant    protocol.Tenant // whose quota its pages count against
	Session   string
	Retention *messages.Retention
	Prompt    TokenCount
	Arrived   time.Duration // the engine's time of the admission
	// InputRetention is the retention of the encoder's input, for models that have an
	// encoder. Namespace.Encoder is the key of that input then.
	InputRetention *messages.Retention
}

// Sequence is one running sequence. The comment of the package draws its counts.
type Sequence struct {
	Origin
	arena   *Arena
	id      messages.SequenceID
	running bool // the slot is taken

	// admitted: the admission is complete. Until then tables and counts are what
	// its stages have made so far, and Check knows no relation between them.
	admitted bool
	loss     Loss
	// NoStore: an invalidation named the sequence, or the symbols of its prompt are
	// gone: it offers nothing to the tree any more.
	NoStore bool

	tokens   [][]messages.Token // by beam, all of one length; covered ones are symbols
	computed TokenCount         // ≤ length
	// given are the appended tokens that came with the sequence: those of the sequence that
	// it was forked from, or of another engine.
	given TokenCount
	Input Input

	sharedBlocks   BlockIndex // ≤ the blocks of the table
	retainedBlocks BlockIndex // ≤ the whole blocks of computed
	reusedBlocks   BlockIndex // ≤ the blocks of the prompt
	retained       retainedPrefixes
	Cursor         protocol.Cursor // of the last block that the tree was seen to hold

	chunk        TokenCount // tokens of a chunk while the prompt is computed in chunks, else 0
	pendingBeams int        // beams to come when the prompt is computed; 0: none

	symbols *int // sequences that share the symbols of the prompt; nil: none

	checkpoints
	pageTables
	Use     protocol.Use    // what the next drop leaves on its pages
	After   messages.Ticket // of the last kernel of the host that may use its pages
	opened  uint64          // stamp of the request that opened the sequence
	Touched uint64          // stamp of the last request that changes it
}

// Loss says why a sequence is lost.
type Loss uint8

// The losses. String gives the end of "sequence 0.1 was lost".
const (
	NotLost   Loss = iota
	LostActor      // an actor failed over a request that cannot be taken back
	LostCopy       // a copy on write failed and cannot be taken back
)

// String gives the reason as a refusal states it.
func (l Loss) String() string {
	switch l {
	case NotLost:
		return ""
	case LostCopy:
		return ": a copy on write failed"
	default:
		return " with a failed actor"
	}
}

// MarkLost gives a sequence up: every request about it is refused from now on but
// its release. A sequence that is lost already keeps its first reason.
func (s *Sequence) MarkLost(reason Loss) {
	if s.loss == NotLost {
		s.loss = reason
	}
}

// IsLost tells whether the sequence is lost.
func (s *Sequence) IsLost() bool { return s.loss != NotLost }

// ID is the handle of the sequence.
func (s *Sequence) ID() messages.SequenceID { return s.id }

// Length is the number of tokens of each beam.
func (s *Sequence) Length() TokenCount { return TokenCount(len(s.tokens[0])) }

// generatedBy is the number of tokens that were appended to a sequence, of all beams.
func generatedBy(s *Sequence) TokenCount {
	if !s.admitted {
		return 0
	}
	return max(0, s.Length()-s.Prompt-s.given) * TokenCount(s.Width())
}

// Width is the number of beams that have tokens and tables of their own.
func (s *Sequence) Width() int { return len(s.tokens) }

// Beams is the number of beams that the host knows of.
func (s *Sequence) Beams() int { return max(s.Width(), s.pendingBeams) }

// Tokens are those of one beam. The caller does not change them.
func (s *Sequence) Tokens(beam int) []messages.Token { return s.tokens[beam] }

// Computed is the number of leading tokens whose KV is in the pages.
func (s *Sequence) Computed() TokenCount { return s.computed }

// PromptComputed tells whether all of the prompt is computed.
func (s *Sequence) PromptComputed() bool { return s.computed >= s.Prompt }

// SharedBlocks is the number of leading blocks that others may hold, too.
func (s *Sequence) SharedBlocks() BlockIndex { return s.sharedBlocks }

// ReusedBlocks is the number of leading blocks that were reused whole.
func (s *Sequence) ReusedBlocks() BlockIndex { return s.reusedBlocks }

// SetAfter notes a kernel of the host; the zero Ticket is none and changes nothing.
func (s *Sequence) SetAfter(t messages.Ticket) {
	if !t.IsZero() {
		s.After = t
	}
}

// ForgetTree follows a tree that was emptied: it knows no cursor and no symbol any
// more, nor which pages are taken. Sequences that hold one page may have computed
// different lengths of it, like forks, and only one of them may store there.
func (s *Sequence) ForgetTree() {
	s.Cursor, s.Input.Cursor = protocol.Cursor{}, protocol.Cursor{}
	s.ShareAll()
	if s.symbols != nil {
		s.symbols, s.NoStore = nil, true
	}
}

// ShareAll says that others, or the tree, may hold any of the pages. Blocks that a step has given
// back are not counted any more.
func (s *Sequence) ShareAll() { s.sharedBlocks = s.Blocks() }
