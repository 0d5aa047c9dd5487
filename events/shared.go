package events

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// shared is what a log knows of the trees that tell it: two, if second is set.
type shared struct {
	second messages.PoolID // the first pool of the second tree
	trees  [2]teller
	bare   bool // the last event said that nothing is left, and last is the tree that did
	last   int
}

// teller is what one tree has told.
type teller struct {
	keys int    // that its pools hold
	next uint64 // the id after its last event
}

// tree is which tree a pool belongs to.
func (l *Log) tree(p messages.PoolID) int {
	if l.shared.second > 0 && p >= l.shared.second {
		return 1
	}
	return 0
}

// clears tells whether readers hear that a tree is empty: they are told that
// nothing is left of either, and once.
func (l *Log) clears(tree int) bool {
	return l.shared.trees[1-tree].keys == 0 && !(l.shared.bare && l.shared.last != tree)
}

// clearAll tells that nothing is left.
func (l *Log) clearAll(tree int) {
	l.push(&protocol.Event{Event: messages.Event{Type: messages.EventCleared}})
	l.shared.trees[tree].next = l.next
	l.shared.bare, l.shared.last = true, tree
	l.owed.forget() // nothing from before is spoken of again
}

// gap notes that events were lost before the one with an id, of whichever tree.
func (s *shared) gap(next uint64) {
	s.bare = false
	for i := range s.trees {
		s.trees[i].next = next
	}
}

// ToldSince tells whether the tree of a pool has told of anything since the next
// event was to have an id.
func (l *Log) ToldSince(p messages.PoolID, id uint64) bool {
	return l.shared.trees[l.tree(p)].next > id
}
