package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// reporter tells others what a message changes: pools and offloader by effects, the
// event log by changes. What it tells of blocks is read from the layers below at the
// time of the change, since the blocks may have left the tree when it is read.
type reporter struct {
	arena     arena
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

	changes *protocol.Changes // of the keys, since they were taken last
	event   event             // the last one, if the message under way may add to it; else noEvent
	// last is the block of event that came last. While event is noEvent it may be the id of
	// another block, and is not read.
	last protocol.BlockID
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

// effect records that kind happens to block b of a pool, as a part of the effect before if
// that is of the same kind and priority, and ends with the block before b. page is
// NoPage for the kinds without pages.
func (t *reporter) effect(
	kind protocol.EffectKind, p int, b protocol.BlockID, page messages.PageID,
) {
	var priority messages.Priority
	useless := false
	switch kind {
	case protocol.Attach, protocol.Reprioritize, protocol.HostReprioritize, protocol.HostAttach:
		priority = t.arena.blocks[b].priority
	}
	switch kind {
	case protocol.Attach, protocol.HostAttach, protocol.Appraise, protocol.HostAppraise:
		useless = t.arena.toldUseless(p, b)
	}
	j := &t.log
	j.blocks = append(j.blocks, b)
	if page != messages.NoPage {
		j.pages = append(j.pages, page)
	}
	// A slice that append has moved is still valid: earlier effects keep the old array, whose
	// contents do not change.
	if n := len(j.effects); n > 0 {
		e := &j.effects[n-1]
		if k := len(e.Blocks); k > 0 && e.Kind == kind && int(e.Pool) == p && e.Priority == priority &&
			e.Useless == useless && t.arena.follow(kind, e.Blocks[k-1], b) {
			e.Blocks = j.blocks[len(j.blocks)-k-1:]
			if page != messages.NoPage {
				e.Pages = j.pages[len(j.pages)-k-1:]
			}
			return
		}
	}
	e := protocol.Effect{
		Kind: kind, Pool: messages.PoolID(p), Depth: t.arena.blocks[b].depth, Priority: priority,
		Useless: useless,
		Blocks:  j.blocks[len(j.blocks)-1:],
	}
	if page != messages.NoPage {
		e.Pages = j.pages[len(j.pages)-1:]
	}
	j.effects = append(j.effects, e)
}
