package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// owedPerEvent is for how many blocks, for each event that the log may keep, it
// holds on to the tokens when their stored events were lost: about as many as an
// event itself may tell of. A block that has gone before that many others were
// lost needs no name, unless its removal is still kept.
const owedPerEvent = 1024

// sweepAfter is how many namings are owed at least before those of blocks that
// have gone are looked for.
const sweepAfter = 1024

// owed are the namings whose last stored event was lost, oldest first. Nobody
// has named them then, but events to come may speak of their blocks.
type owed struct {
	namings []*protocol.Naming
	head    int
	blocks  int
	limit   int // of blocks
	left    int // namings that the last sweep has left
}

func (o *owed) push(k *protocol.Naming) {
	if len(o.namings)-o.head >= max(sweepAfter, 2*o.left) {
		o.sweep()
	}
	o.namings = append(o.namings, k)
	o.blocks += int(k.Blocks)
}

// forget lets all go: nothing to come speaks of them, or they are being named.
func (o *owed) forget() { *o = owed{limit: o.limit} }

// sweep lets go what nothing speaks of any more. It runs when the namings have
// doubled since it did last, so it costs constant work for each that is pushed.
func (o *owed) sweep() {
	kept := o.namings[:0]
	o.blocks = 0
	for _, k := range o.namings[o.head:] {
		if k.Era != freed {
			kept = append(kept, k)
			o.blocks += int(k.Blocks)
		}
	}
	clear(o.namings[len(kept):])
	o.namings, o.head, o.left = kept, 0, len(kept)
}

func (o *owed) pop() *protocol.Naming {
	k := o.namings[o.head]
	o.namings[o.head] = nil
	o.blocks -= int(k.Blocks)
	if o.head++; 2*o.head >= len(o.namings) {
		o.namings, o.head = slices.Delete(o.namings, 0, o.head), 0
	}
	return k
}

// enter counts what an event that is kept from now on tells of namings, and
// answers how many keys more there are.
func enter(e *protocol.Event) (keys int) {
	keys = len(e.Blocks) - len(e.Hashes)
	for i := range e.Spans {
		s := &e.Spans[i]
		switch e.Type {
		case messages.EventStored:
			keys += int(s.Count)
			s.Naming.Held += s.Count
			if s.Tokens == nil {
				s.Naming.Buffered++
			}
		case messages.EventRemoved:
			keys -= int(s.Count)
			s.Naming.Held -= s.Count
		}
	}
	return keys
}

// leave ends the need of an event, which is kept no longer, for tokens.
func leave(e *protocol.Event) {
	if e.Type != messages.EventStored {
		return
	}
	for i := range e.Spans {
		if e.Spans[i].Tokens == nil {
			e.Spans[i].Naming.Buffered--
		}
	}
}

// lose ends an event that nobody will read.
func (l *Log) lose(e *protocol.Event) {
	leave(e)
	l.unneed(e)
	if e.Type != messages.EventStored {
		return
	}
	for i := range e.Spans {
		if k := e.Spans[i].Naming; k.Era != freed && k.Buffered == 0 && e.Spans[i].Tokens == nil {
			l.owed.push(k)
		}
	}
}

// Settle bounds the tokens that are kept for blocks whose stored events were
// lost: of the oldest, those that are still stored are named, so that a reader
// who comes late gets the right names of what is removed. It answers tokens that
// are nobody's now.
func (l *Log) Settle() (spent [][]messages.Token) {
	var n namer
	for i, k := range l.needs.free {
		n.release(k)
		l.needs.free[i] = nil
	}
	l.needs.free = l.needs.free[:0]
	for l.owed.blocks > l.owed.limit {
		k := l.owed.pop()
		if k.Buffered > 0 {
			continue // lost later
		}
		if k.Held > 0 && k.Era != freed {
			n.name(k)
		}
		if k.Hashes != nil {
			n.release(k)
		}
	}
	for _, k := range n.named {
		if k.Buffered == 0 {
			n.release(k)
		}
	}
	l.verify()
	return n.spent
}

// checkNamings counts the spans of kept events anew.
func (l *Log) checkNamings() (problems []error) {
	spans, all := map[*protocol.Naming]int32{}, map[*protocol.Naming]int32{}
	for i := range l.ring {
		e := &l.ring[i]
		for _, s := range e.Spans {
			all[s.Naming]++
			if e.Type == messages.EventStored && s.Tokens == nil {
				spans[s.Naming]++
			}
		}
	}
	for i := range l.ring {
		e := &l.ring[i]
		for _, s := range e.Spans {
			k := s.Naming
			if n := spans[k]; n != k.Buffered {
				problems = append(problems, fmt.Errorf("events: event %d has a naming that counts %d spans, there are %d", e.ID, k.Buffered, n))
			}
			if k.Era == freed || k.Era == l.needs.era && k.Needed < all[k] {
				problems = append(problems, fmt.Errorf("events: event %d has a naming of era %d that counts %d needs, there are %d spans", e.ID, k.Era, k.Needed, all[k]))
			}
			if spans[k] > 0 && k.Tokens == nil {
				problems = append(problems, fmt.Errorf("events: the tokens that event %d tells of are gone", e.ID))
			}
		}
	}
	blocks := 0
	for _, k := range l.owed.namings[l.owed.head:] {
		blocks += int(k.Blocks)
	}
	if blocks != l.owed.blocks {
		problems = append(problems, fmt.Errorf("events: %d blocks are owed names, counted as %d", blocks, l.owed.blocks))
	}
	return problems
}
