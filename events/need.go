package events

import (
	"github.com/kvactor/kvactor/internal/protocol"
)

// needs find out which namings no name can be asked for any more: those whose
// blocks are gone from the tree, that no kept event speaks of, and that nothing
// unread comes behind. What they were to be named by is free at once, unhashed.
//
//	tree's blocks ──┐
//	kept spans ─────┼──▶ naming.Needed ──0──▶ free
//	namings behind ─┘
//
// The spans that a reader takes stay counted: Name frees their namings and all
// before them. One that the count is never told the end of, after a failure, goes
// to the garbage collector.
type needs struct {
	era  int32              // of the counts: a log that follows on a broken one does not trust its counts
	free []*protocol.Naming // since the last Settle
}

// freed is the era of namings that are counted no more.
const freed = -1

// add counts one more span of a kept event. The first time a naming is met the
// tree has its blocks, and it comes behind the one before.
func (s *needs) add(k *protocol.Naming) {
	for ; k != nil; k = k.After {
		if k.Era != 0 {
			if k.Era == s.era {
				k.Needed++
			}
			return
		}
		k.Era, k.Needed = s.era, 2 // the tree and the caller, or the naming behind
	}
}

// drop ends a need; the last one ends that for the naming before as well.
func (s *needs) drop(k *protocol.Naming) {
	for ; k != nil && k.Era == s.era; k = k.After {
		if k.Needed--; k.Needed > 0 {
			return
		}
		s.release(k)
	}
}

func (s *needs) release(k *protocol.Naming) {
	k.Era = freed
	s.free = append(s.free, k)
}

// Gone says that the tree has no block any more of these namings, nor any behind
// them: after the events that it has told till then, nothing speaks of them. Call
// Settle after it, as after Append. Who does not say so loses no more than that
// the tokens come back from Settle.
func (l *Log) Gone(namings []*protocol.Naming) {
	if !l.Enabled() {
		return
	}
	for _, k := range namings {
		if k.Era == 0 { // nothing was told of it, nor of any behind it
			l.needs.release(k)
		} else {
			l.needs.drop(k)
		}
	}
	l.verify()
}

// need counts what an event that is kept from now on speaks of.
func (l *Log) need(e *protocol.Event) {
	for i := range e.Spans {
		l.needs.add(e.Spans[i].Naming)
	}
}

// unneed ends that without the event being read.
func (l *Log) unneed(e *protocol.Event) {
	for i := range e.Spans {
		l.needs.drop(e.Spans[i].Naming)
	}
}
