package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// journal collects what a message causes: effects, whose slices lie in two
// arenas that the next message reuses, and events.
type journal struct {
	effects []protocol.Effect
	pages   []messages.PageID
	blocks  []protocol.BlockID

	events []protocol.Event
	// floor is the first event of the message under way: only later ones may
	// still grow.
	floor int
	last  protocol.BlockID   // of the last stored event
	fresh []*protocol.Naming // born in the message under way
	gone  []*protocol.Naming // whose last block has gone since TakeGone
	most  int                // events that were taken last
	spans []protocol.Span    // of events of one span, up to spanChunk
}

// spanChunk is how many events of one span share an array, so that a step which
// stores a block of each of many sequences does not allocate for each.
const spanChunk = 64

// one is the span of an event that has no other.
func (j *journal) one(s protocol.Span) []protocol.Span {
	if len(j.spans) == cap(j.spans) {
		j.spans = make([]protocol.Span, 0, spanChunk)
	}
	j.spans = append(j.spans, s)
	n := len(j.spans)
	return j.spans[n-1 : n : n]
}

// begin starts a message; its effects go into buffer.
func (j *journal) begin(buffer []protocol.Effect) {
	j.effects, j.pages, j.blocks = buffer[:0], j.pages[:0], j.blocks[:0]
	j.floor = len(j.events)
	for i, k := range j.fresh {
		k.Fresh, j.fresh[i] = false, nil
	}
	j.fresh = j.fresh[:0]
}

// end gives the effects of the message.
func (j *journal) end() []protocol.Effect {
	e := j.effects
	j.effects = nil
	return e
}

// effect records that kind happens to block b of a pool. page is NoPage for the
// Host kinds.
func (t *Tree) effect(kind protocol.EffectKind, p int, b protocol.BlockID, page messages.PageID) {
	blocks, pages := [1]protocol.BlockID{b}, [1]messages.PageID{page}
	if page == messages.NoPage {
		t.effects(kind, p, blocks[:], nil)
		return
	}
	t.effects(kind, p, blocks[:], pages[:])
}

// effects records that kind happens to consecutive blocks of one priority and moment in a
// pool, in a run with the effect before it if that is of the same kind and ends
// where they begin. There are as many pages, or none for the Host kinds. The
// slices are copied.
func (t *Tree) effects(kind protocol.EffectKind, p int, blocks []protocol.BlockID, pages []messages.PageID) {
	j := &t.log
	j.blocks = append(j.blocks, blocks...)
	j.pages = append(j.pages, pages...)
	b := blocks[0]
	depth, priority, until := t.depth(b), messages.Priority(0), time.Duration(0)
	if kind == protocol.Attach || kind == protocol.Reprioritize || kind == protocol.HostReprioritize {
		t.update(b)
		priority = t.blocks.priority[b]
		if kind != protocol.HostReprioritize {
			until, _ = t.timers.of(b)
		}
	}
	if n := len(j.effects); n > 0 {
		e := &j.effects[n-1]
		size := len(e.Blocks)
		if e.Kind == kind && int(e.Pool) == p && e.Priority == priority && e.Until == until &&
			e.Depth+int32(size) == depth && t.before(b) == e.Blocks[size-1] {
			e.Blocks = j.blocks[len(j.blocks)-size-len(blocks):]
			if pages != nil {
				e.Pages = j.pages[len(j.pages)-size-len(pages):]
			}
			return
		}
	}
	e := protocol.Effect{
		Kind: kind, Pool: messages.PoolID(p), Depth: depth, Priority: priority, Until: until,
		Blocks: j.blocks[len(j.blocks)-len(blocks):],
	}
	if pages != nil {
		e.Pages = j.pages[len(j.pages)-len(pages):]
	}
	j.effects = append(j.effects, e)
}
