package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attribute gives the blocks of an offer their sessions, priorities and timers. A run
// that is stored already is left out as a whole if the offer changes nothing about
// it. It runs before attach: whether a block is new to the cache is asked of the
// pools, and the first page would make every block look stored.
func (t *storer) attribute(o *offer) {
	t.retention.read(o.Retention, o.Prompt, t.base.arena.tpb)
	t.plain = resize(t.plain, len(t.path.segments))
	clear(t.plain)
	for k, g := range t.path.segments {
		held, fresh := t.base.arena.heldThroughout(g.node, -1), t.base.arena.heldNowhere(g.node, -1)
		depth := t.base.arena.nodes[g.node].depth
		// This is a prompt that is stored again unchanged, the common case of a warm
		// engine. Some pool holds every block of the run, so none is new, and the
		// test costs no look at a block.
		if held && t.base.sessions.none() && (t.retention.empty() || int(depth+g.hi) <= o.RetentionFrom) {
			continue
		}
		ids := t.base.arena.ids(g.node)
		// All blocks of a new run get the same attributes, so no block is asked for
		// its own, and attach need not look for where the priority changes.
		if fresh && o.Session == "" && t.retention.empty() {
			t.attributePlain(o, ids[g.lo:g.hi], depth+g.lo)
			t.plain[k] = true
			continue
		}
		for i := g.lo; i < g.hi; i++ {
			switch d := depth + i; {
			// A ghost stays a ghost, and a stored block keeps what it has.
			case !o.offers(d):
			case held || !fresh && t.base.arena.held(g.node, i):
				t.attributeStored(o, ids[i], d)
			default:
				t.attributeNew(o, ids[i], d)
			}
		}
	}
}

// attributeNew gives block b of depth d, which no pool held, what an offer says.
func (t *storer) attributeNew(o *offer, b protocol.BlockID, d int32) {
	term, covered := t.retention.of(d)
	if !covered {
		term.priority = messages.DefaultPriority
	}
	t.base.blocksHeld++
	t.base.blocks.priority[b] = term.priority
	// The name is looked up once for each offer, not once for each block.
	if o.session != none {
		t.base.sessions.refs[o.session]++
	} else {
		o.session = t.base.sessions.add(o.Session)
	}
	t.base.blocks.setSession(b, o.session)
	t.base.timers.start(b, o.now, term.duration)
	// A new block is on the device, so its pool ends the priority by itself. Only an
	// event needs the tree's timer; moveBlock starts to watch the block if it goes to
	// host memory.
	if t.base.recording {
		t.base.timers.watch(b)
	}
}

// attributePlain gives consecutive blocks from depth d on, which no pool held, the
// attributes of an offer without session and retention: most offers are such, and
// this is one loop. It sets the stamp too, which attachRun sets otherwise: a block
// that is offered here gets a page of some pool for certain, as no pool held it.
func (t *storer) attributePlain(o *offer, ids []protocol.BlockID, d int32) {
	// The last pool mostly offers all, and then no block is asked for.
	front := o.offeredFront(d, d+int32(len(ids)))
	t.stampPlain(ids[:front], o.stamp)
	for i, b := range ids[front:] {
		if o.offers(d + int32(front+i)) {
			t.stampPlain([]protocol.BlockID{b}, o.stamp)
		}
	}
}

// stampPlain gives blocks a stamp and the default priority, and counts them.
func (t *storer) stampPlain(ids []protocol.BlockID, stamp uint32) {
	stamps := t.base.blocks.stamp
	priorities := t.base.blocks.priority[:len(stamps)] // one comparison with a length is enough
	for _, b := range ids {
		stamps[b], priorities[b] = stamp, messages.DefaultPriority
	}
	t.base.blocksHeld += len(ids)
}

// attributeStored changes the attributes of block b of depth d, which some pool
// holds, as an offer says.
func (t *storer) attributeStored(o *offer, b protocol.BlockID, d int32) {
	t.base.shareSession(b, o.Session)
	// Applying the retention again would start its duration again with each store.
	if int(d) < o.RetentionFrom {
		return
	}
	if term, covered := t.retention.of(d); covered {
		t.setRetention(b, term, o.now)
	}
}
