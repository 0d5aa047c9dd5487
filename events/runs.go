package events

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// none is the absence of a run.
const none int32 = -1

// run is blocks that entered a tree together, one after the other in a prefix:
// the log's own copy of what their hashes are made of. A hash is a chain over
// everything before a block, so a run points to that of the block before:
//
//	namespace ◀── [b0 b1 b2] ◀── [b3 b4 b5]
//	                      ▲
//	                      └────── [b3']         b2 has two runs behind it
//
// Invariants: refs counts inTree as one if it is not 0, the spans of kept events,
// the runs that point here, and drafts. A run without refs is free. tokens and
// what names has do not change until then, so a draft may read them on another
// goroutine.
//
// A decode step makes a run for each block that it stores, and each is one cache
// line: what most runs lack is in names.
type run struct {
	tokens []messages.Token // of all blocks, padding included; nil: the run is free
	names  *names           // nil: the run is in the zero namespace, has no covers and is not hashed

	parent      int32 // of the block before; none: the prefix begins here
	parentIndex int32 // of that block in its run
	count       int32 // blocks
	padding     int32 // tokens at the end that no reader gets

	// 0 ≤ inTree ≤ count. Which of the blocks they are need not be known, since the
	// run stays whole until it ends.
	inTree int32 // blocks that the tree has
	refs   int32
	drafts int32 // of refs, those of drafts
	draft  int32 // index in the last draft that has the run; see Draft.has
}

// names are what the names of a run's blocks are made of beside tokens, and the names
// once they are made. A run gets others with hashes and does not change those it has.
type names struct {
	// The hash of the namespace stands before that of the first block.
	namespace messages.Namespace // if the run has no parent
	covers    []messages.Cover   // by token; nil if no item covers any
	hashes    []kvevents.Hash    // by block; nil: not hashed yet
	before    kvevents.Hash      // of the block before, once there are hashes
}

// noNames are those of a run that has none.
var noNames names

// named returns the names of a run, which are only read.
func (r *run) named() *names {
	if r.names == nil {
		return &noNames
	}
	return r.names
}

// size is the number of tokens of each block. One that is stored in part is the
// only block of its run.
func (r *run) size() int { return len(r.tokens) / int(r.count) }

// position is one block: block index of a run.
type position struct{ run, index int32 }

// runs are all runs, by number.
type runs struct {
	list []run
	free []int32
}

// enter makes a run of new blocks.
func (l *Log) enter(c *protocol.Change, m material) {
	n := l.runs.add()
	r := &l.runs.list[n]
	r.parent, r.count, r.padding = none, c.Count, c.Padding
	if c.Parent != protocol.NoBlock {
		at := l.blocks[c.Parent]
		r.parent, r.parentIndex = at.run, at.index
		// The ref of the run before lasts as long as this run: its hashes are needed
		// for those here.
		l.runs.list[at.run].refs++
	}
	r.tokens = slices.Clone(m.tokens)
	zero := m.namespace == nil || *m.namespace == (messages.Namespace{})
	if m.covers != nil || !zero {
		r.names = &names{covers: slices.Clone(m.covers)}
		if !zero {
			r.names.namespace = *m.namespace
		}
	}
	r.inTree, r.refs = c.Count, 1
	for i, id := range m.blocks {
		for int(id) >= len(l.blocks) {
			l.blocks = append(l.blocks, position{})
		}
		l.blocks[id] = position{n, int32(i)}
	}
}

// material is what entering blocks bring with them.
type material struct {
	blocks    []protocol.BlockID
	tokens    []messages.Token
	covers    []messages.Cover
	namespace *messages.Namespace // if the blocks begin a prefix
}

// leave notes that the tree does not have blocks any more.
func (l *Log) leave(c *protocol.Change) {
	at := l.blocks[c.Last]
	for n := c.Count; n > 0; {
		// The blocks may be of several runs, entered at different times. The loop
		// follows them backwards by the links between runs.
		k := min(n, at.index+1)
		n -= k
		r := &l.runs.list[at.run]
		r.inTree -= k
		// The link is read before unref, which clears the run.
		over, gone := position{r.parent, r.parentIndex}, r.inTree == 0
		if gone {
			// The run before stays: the tree has its blocks, or n is not 0.
			l.runs.unref(at.run)
		}
		at = over
	}
}

// add returns the number of a run that nothing is known of.
func (s *runs) add() int32 {
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x
	}
	s.list = append(s.list, run{})
	return int32(len(s.list) - 1)
}

// unref ends one ref of a run, and with the last one the run and its ref of the
// run before. A chain of them may be as long as a prompt, so it is a loop.
func (s *runs) unref(n int32) {
	for n != none {
		r := &s.list[n]
		if r.refs--; r.refs > 0 {
			return
		}
		parent := r.parent
		*r = run{}
		s.free = append(s.free, n)
		n = parent
	}
}

// forgetTree ends the refs of one tree: it is empty, or what is known of it is of no
// use. Kept events of the tree and drafts still refer to its runs, and keep them
// until they end.
func (l *Log) forgetTree() {
	for n := range l.runs.list {
		if r := &l.runs.list[n]; r.inTree > 0 {
			r.inTree = 0
			l.runs.unref(int32(n))
		}
	}
	l.blocks = l.blocks[:0]
}
