package tree

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// reporter tells others what a message changes: pools and offloader by effects, the
// event log by changes. What it tells of blocks is read from the layers below at the
// time of the change, since the blocks may have left the tree when it is read.
type reporter struct {
	prefixes
	recording bool    // record changes for the event log
	log       journal // effects and changes of the message under way
}

// journal collects what a message causes: effects, whose slices lie in two arenas
// that the next message reuses, and changes for the event log.
type journal struct {
	// Every effect's Blocks and Pages are ranges of blocks and pages below, in the
	// order of the effects; what an effect has is behind what all effects before it
	// have. So an effect grows in place.
	effects []protocol.Effect
	pages   []messages.PageID
	blocks  []protocol.BlockID

	changes *protocol.Changes   // of the keys, since they were taken last
	spare   []*protocol.Changes // empty
	// counting is set while only the number of the changes is needed: the event log
	// counts events for readers that do not read. changes has no lists then.
	counting bool
	event    event // the last one, if the message under way may add to it; else noEvent
	// stored is the last block of the last change of kind BlocksStored. While event is
	// noEvent it may be the id of another block, and is not read.
	stored protocol.BlockID
}

// begin starts a message; its effects are collected in buffer.
func (j *journal) begin(buffer []protocol.Effect) {
	j.effects, j.pages, j.blocks = buffer[:0], j.pages[:0], j.blocks[:0]
	j.event = noEvent
}

// end returns the effects of the message.
func (j *journal) end() []protocol.Effect {
	e := j.effects
	j.effects = nil
	return e
}

// effect records that kind happens to block b of a pool. page is NoPage for the
// Host kinds.
func (t *reporter) effect(kind protocol.EffectKind, p int, b protocol.BlockID, page messages.PageID) {
	blocks, pages := [1]protocol.BlockID{b}, [1]messages.PageID{page}
	if page == messages.NoPage {
		t.effects(kind, p, blocks[:], nil)
		return
	}
	t.effects(kind, p, blocks[:], pages[:])
}

// effects records that kind happens to consecutive blocks of a pool, which have one
// priority and end: as a part of the effect before, if that is of the same kind and
// ends where they begin. There are as many pages, or none for the Host kinds. The
// slices are copied.
func (t *reporter) effects(kind protocol.EffectKind, p int, blocks []protocol.BlockID, pages []messages.PageID) {
	j := &t.log
	j.blocks = append(j.blocks, blocks...)
	j.pages = append(j.pages, pages...)
	b := blocks[0]
	depth, priority, until := t.arena.depth(b), messages.Priority(0), time.Duration(0)
	if kind == protocol.Attach || kind == protocol.Reprioritize || kind == protocol.HostReprioritize || kind == protocol.HostAttach {
		t.expireNow(b)
		priority = t.blocks.priority[b]
		if kind == protocol.Attach || kind == protocol.Reprioritize {
			until, _ = t.timers.of(b)
		}
	}
	// The effects before have the same kind, so either both have pages or neither
	// has. A slice that append has moved is still valid: earlier effects keep the old
	// array, whose contents do not change.
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
