package events

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// shared is what a log must know to serve two trees, if second is set.
type shared struct {
	second messages.PoolID // the first pool of the second tree
	bare   bool            // the last event said that nothing is left, and last is the tree that did
	last   int8
}

// NewShared makes a log that two trees tell of their changes: one has the pools
// before second, the other those from it on.
func NewShared(c Config, second messages.PoolID) *Log {
	l := New(c)
	l.shared.second = second
	return l
}

// tree returns which tree a pool belongs to.
func (l *Log) tree(p messages.PoolID) int8 {
	if l.shared.second > 0 && p >= l.shared.second {
		return 1
	}
	return 0
}

// clear makes the event cleared when a tree is empty and the other one is, too; one
// event, if both report it.
func (l *Log) clear(tree int8) {
	if l.sources[1-tree].keys > 0 || l.shared.bare && l.shared.last != tree {
		return
	}
	l.push(kept{kind: protocol.EverythingForgot})
	l.sources[tree].next = l.next
	l.shared.bare, l.shared.last = true, tree
}

// gap notes that events were lost before the one with an id, of whichever tree.
func (s *shared) gap(next uint64, sources *[2]source) {
	// After a gap readers begin with a snapshot, so a cleared event before it says
	// nothing to them.
	s.bare = false
	for i := range sources {
		sources[i].next = next
	}
}

// ToldSince tells whether there was an event of the tree of a pool since the next
// event was to have an id.
func (l *Log) ToldSince(p messages.PoolID, id uint64) bool {
	return l.sources[l.tree(p)].next > id
}
