package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sequence is one running sequence. Blocks before sealed may be held by others
// too (tree, pin, fork); those from it on are the sequence's alone.
type sequence struct {
	id        messages.SequenceID
	running   bool
	lost      bool // its pages went down with a failed actor
	mute      bool // invalidated: it stores nothing any more
	forked    bool // forks hold some of its pages, or did
	namespace messages.Namespace
	tenant    protocol.Tenant // whose account its pages are on
	session   string
	retention *messages.Retention
	tokens    [][]messages.Token // by beam, symbols included
	prompt    int
	computed  int
	pools     []poolPages
	sealed    int // blocks
	anew      int // blocks before it have had this request's retention
	settled   settled
	cursor    protocol.Cursor
	chunk     int // tokens; 0: not chunked, or the prompt is computed
	chunkEnd  int // tokens that a commit may reach
	fan       int // beams to come: while chunked they share one table, see fanOut
	own       int // blocks from it on were not reused whole
	use       protocol.Use
	born      uint64              // stamp of the request that made it
	stepped   uint64              // stamp of the last request that stepped it
	view      [][]messages.PageID // tables of beam 0 by pool, for the tree
	after     messages.Ticket     // kernels of the host use the pages until then
	symbols   *int                // sequences that share the symbols of this prompt; nil: none
}

// poolPages is what a sequence holds in one pool. Every entry of every table
// that is not NoPage is one reference.
type poolPages struct {
	tables  [][]messages.PageID // by beam
	kept    int                 // blocks before it, sinks apart, have left the window
	reserve int                 // pages reserved while the prompt is chunked
}

func (s *sequence) length() int { return len(s.tokens[0]) }

func (s *sequence) width() int { return len(s.tokens) }

// beams is the width that the host knows.
func (s *sequence) beams() int { return max(s.width(), s.fan) }

// sequences is an arena of sequences; ids name slot and generation.
type sequences struct {
	pools int
	slots []*sequence
	free  []uint32
	live  int
}

// open gives an empty running sequence with the given number of beams. Slices
// of an earlier life of the slot are reused.
func (a *sequences) open(width int) *sequence {
	var slot uint32
	if n := len(a.free); n > 0 {
		slot, a.free = a.free[n-1], a.free[:n-1]
	} else {
		slot = uint32(len(a.slots))
		a.slots = append(a.slots, &sequence{pools: make([]poolPages, a.pools)})
	}
	s := a.slots[slot]
	generation := uint32(s.id>>32) + 1
	tokens, pools, view := s.tokens[:0], s.pools, s.view
	*s = sequence{
		id: messages.SequenceID(generation)<<32 | messages.SequenceID(slot), running: true,
		tokens: reopen(tokens, width), pools: pools, view: view,
	}
	for p := range pools {
		pools[p] = poolPages{tables: reopen(pools[p].tables[:0], width)}
	}
	a.live++
	return s
}

// openSequence gives an empty running sequence of one beam.
func (c *Coordinator) openSequence() *sequence {
	s := c.sequences.open(1)
	s.born = c.stamp
	return s
}

// reopen gives n empty slices, those of an earlier life where they are.
func reopen[T any](lists [][]T, n int) [][]T {
	for i := range n {
		if i < cap(lists) {
			lists = lists[:i+1]
			lists[i] = lists[i][:0]
		} else {
			lists = append(lists, nil)
		}
	}
	return lists
}

// find gives a running sequence, or the refusal.
func (a *sequences) find(id messages.SequenceID) (*sequence, *messages.Refusal) {
	slot := uint32(id)
	if int(slot) >= len(a.slots) || a.slots[slot].id != id || !a.slots[slot].running {
		return nil, messages.Refuse(messages.UnknownSequence, "sequence %v is not running", id)
	}
	s := a.slots[slot]
	if s.lost {
		return nil, messages.Refuse(messages.SequenceLost, "sequence %v was lost with a failed actor", id)
	}
	return s, nil
}

// lost gives a sequence that was lost and not yet released; nil if it is none.
func (a *sequences) lost(id messages.SequenceID) *sequence {
	if slot := uint32(id); int(slot) < len(a.slots) {
		if s := a.slots[slot]; s.id == id && s.running && s.lost {
			return s
		}
	}
	return nil
}

// lose gives a sequence up. What it holds it holds until it is released; a
// prompt that is not computed never will be, and reserves nothing.
func (s *sequence) lose() { s.lost, s.chunk = true, 0 }

// end frees the slot.
func (a *sequences) end(s *sequence) {
	s.running = false
	s.retention = nil
	a.free = append(a.free, uint32(s.id))
	a.live--
}

// pagesHeld counts the device pages that sequences hold, each once.
func (a *sequences) pagesHeld() int {
	n := 0
	for p := range a.pools {
		seen := map[messages.PageID]struct{}{}
		a.each(func(s *sequence) {
			for _, table := range s.pools[p].tables {
				for _, page := range table {
					if page != messages.NoPage {
						seen[page] = struct{}{}
					}
				}
			}
		})
		n += len(seen)
	}
	return n
}

// each visits the running sequences in the order of their slots.
func (a *sequences) each(visit func(*sequence)) {
	for _, s := range a.slots {
		if s.running {
			visit(s)
		}
	}
}

// copyTables gives the tables of a sequence to a host, reusing into.
func (s *sequence) copyTables(into messages.Tables) messages.Tables {
	into = reopen(into[:0], len(s.pools))
	for p := range s.pools {
		into[p] = reopen(into[p][:0], s.beams())
		for b := range into[p] {
			into[p][b] = append(into[p][b], s.pools[p].tables[min(b, s.width()-1)]...)
		}
	}
	return into
}
