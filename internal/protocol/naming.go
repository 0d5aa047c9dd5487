package protocol

import "github.com/kvactor/kvactor/messages"

// Naming is what the names of blocks are made from that entered the tree
// together as one run. Events that nobody has read yet speak of blocks as spans
// of namings, and no block is hashed before a reader asks:
//
//	namespace ◀── naming [b0 b1 b2] ◀── naming [b3 b4 b5]
//	                            ▲
//	                            └────── naming [b3']     behind b2 too
//
// The tree fills one in and from then on only points to it and reads what it
// has filled in. Tokens, Covers and the last group are the event log's as soon
// as it has been told of the naming.
type Naming struct {
	After     *Naming             // the run of the block before; nil: Namespace begins here
	Namespace *messages.Namespace // if After is nil
	Tokens    []messages.Token    // of all blocks, as the host passed them; nil when no longer needed
	Covers    *[]messages.Cover   // by token; nil if no item covers any
	At        int32               // which block of After is the one before
	Depth     int32               // index of the first block in its prefix
	Blocks    int32
	Fresh     bool // born in the tree's message under way: the log has all tokens

	Hashes   []messages.Hash // by block; nil: not named yet
	Held     int32           // blocks that pools hold, counted for each pool
	Buffered int32           // spans of stored events that need Tokens
	Needed   int32           // what a name may yet be asked for through, as the event log counts it
	Era      int32           // of that count; 0: none yet
}

// Span is consecutive blocks of one naming in an event.
type Span struct {
	Naming      *Naming
	Tokens      []messages.Token // of these blocks, where a stored event has its own
	From, Count int32            // blocks [From, From+Count) of the naming
	Padding     int32            // trailing tokens of the last block that are none of the host's
	Tier        messages.Tier    // stored
	Priority    messages.Priority
	Backwards   bool // told from the last to the first
}

// Join adds the blocks of next to s if they follow those of s in the order of
// telling, in the same naming and alike in everything.
func (s *Span) Join(next *Span) bool {
	if s.Padding > 0 || s.Naming != next.Naming || s.Tier != next.Tier || s.Priority != next.Priority || (s.Tokens == nil) != (next.Tokens == nil) {
		return false
	}
	switch {
	case next.From == s.From+s.Count && !s.Backwards && !next.Backwards:
		s.Tokens = append(s.Tokens, next.Tokens...)
	case next.From+next.Count == s.From && s.Tokens == nil && (s.Backwards || s.Count == 1) && (next.Backwards || next.Count == 1):
		s.From, s.Backwards = next.From, true
	default:
		return false
	}
	s.Count, s.Padding = s.Count+next.Count, next.Padding
	return true
}
