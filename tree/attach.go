package tree

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attach gives pool p the pages that it is offered: of blocks that it lacks, and of
// blocks that it keeps in host memory only. Host pages whose contents have come from a store
// are of blocks that it lacks.
func (t *storer) attach(o *offer, p int) {
	if t.host && !o.OnHost {
		t.reportYields(o, p)
	}
	for i, b := range t.path {
		//	location     offered page
		//	device       stays with the sequence: a duplicate
		//	host         becomes the place, unless KeepOnHost lists the block
		//	nowhere      becomes the place
		_, tier, held := t.arena.locations[p][b].Page()
		if held && tier == messages.Primary && !o.OnHost {
			continue
		}
		page := t.offered(o, p, o.first+int32(i))
		switch {
		case page == messages.NoPage:
		case held && o.OnHost:
			// A fault of the caller: it asked the tree what is missing in the same round.
			panic(fmt.Sprintf("tree: block %d is loaded in pool %d, which keeps it at %d", b, p,
				t.arena.locations[p][b]))
		case held && o.keepsOnHost(p, b):
		case held:
			// The pool held the block before and holds it now: the readers of events are told
			// of a tier, not of a stored block.
			t.arena.place(p, b, protocol.OnDevice(page))
			t.effect(protocol.Attach, p, b, page)
			t.record(protocol.TierChanged, p, b, messages.Primary, 0)
		default:
			kind, at := protocol.Attach, protocol.OnDevice(page)
			if o.OnHost {
				kind, at = protocol.HostAttach, protocol.OnHost(page)
			}
			t.arena.place(p, b, at)
			t.appraiser.relocated(b)
			// What is stored already is not stored again: it keeps its stamp.
			t.arena.blocks[b].stamp = o.stamp
			t.effect(kind, p, b, page)
			t.recordStored(b, p)
		}
	}
}

// reportYields tells the offloader which of its contents device pages of the offer
// replace. From then on the host page is no place of the block. Without the effect
// the offloader would keep the page for the block until the block is forgotten. Yields
// are reported before all pages of the pool, as effects join only while no other kind
// comes between.
func (t *storer) reportYields(o *offer, p int) {
	for i, b := range t.path {
		if _, tier, held := t.arena.locations[p][b].Page(); held && tier == messages.Secondary &&
			!o.keepsOnHost(p, b) && t.offered(o, p, o.first+int32(i)) != messages.NoPage {
			t.effect(protocol.HostYield, p, b, messages.NoPage)
		}
	}
}

// attribute gives the blocks of an offer their sessions, priorities and timers. It runs
// before attach: whether a block is new to the cache is asked of the pools, and the first
// page would make every block look stored.
func (t *storer) attribute(o *offer) {
	t.retention.read(o.Retention, o.Prompt, t.arena.tpb)
	for i, b := range t.path {
		d, held := o.first+int32(i), t.arena.held(b)
		// A fetch from a store is no sequence, so no session and no retention of a stored block
		// changes. What is not offered stays as it is: a ghost stays a ghost.
		if held && (o.OnHost || t.retention.empty() && t.arena.blocks[b].session == none) ||
			!t.offers(o, d) {
			continue
		}
		if held {
			t.attributeStored(o, b, d)
		} else {
			t.attributeNew(o, b, d)
		}
	}
}

// attributeNew gives block b of depth d, which no pool held, what an offer says.
func (t *storer) attributeNew(o *offer, b protocol.BlockID, d int32) {
	term := t.termOfNew(d)
	t.arena.blocksHeld++
	t.arena.blocks[b].stamp, t.arena.blocks[b].priority = o.stamp, term.priority
	if o.Session != "" {
		t.arena.blocks[b].session = t.arena.sessions.retain(o.Session)
	}
	t.arena.timers.start(b, term.duration)
}

// termOfNew is what the retention that was read gives to a new block of depth d.
func (t *storer) termOfNew(d int32) term {
	term, covered := t.retention.of(d)
	if !covered {
		term.priority = messages.DefaultPriority
	}
	return term
}

// attributeStored changes the attributes of block b of depth d, which some pool
// holds, as an offer says.
func (t *storer) attributeStored(o *offer, b protocol.BlockID, d int32) {
	t.arena.shareSession(b, o.Session)
	// Applying the retention again would start its duration again with each store.
	if int(d) < o.RetentionFrom {
		return
	}
	if term, covered := t.retention.of(d); covered {
		t.setRetention(b, term)
	}
}
