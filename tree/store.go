package tree

import (
	"time"

	"github.com/kvactor/kvactor/messages"
)

// place is behind the first i blocks of node's run.
type place struct{ node, i int32 }

// offer is one StoreItem under way.
type offer struct {
	*messages.StoreItem
	stamp uint32
	now   time.Duration
}

// page is what the sequence offers of block d to pool p, or NoPage.
func (o *offer) page(p int, d int32) messages.PageID {
	if p >= len(o.Tables) || int(d) >= len(o.Tables[p]) {
		return messages.NoPage
	}
	return o.Tables[p][d]
}

// offers tells whether the sequence offers block d to some pool.
func (o *offer) offers(d int32) bool {
	for p := range o.Tables {
		if o.page(p, d) != messages.NoPage {
			return true
		}
	}
	return false
}

// store adds what a sequence offers: first the structure, then attributes,
// then pages, pool by pool.
func (t *Tree) store(s *messages.StoreItem, now time.Duration) {
	o := offer{s, t.nextStamp(), now}
	t.log.floor = len(t.log.events) // runs of two sequences are two events
	first, whole := int32(s.From/t.tpb), int32(s.To/t.tpb)
	end := int32((s.To + t.tpb - 1) / t.tpb)
	for end > first && !o.offers(end-1) {
		end--
	}
	if end <= first {
		return // what nothing is offered of would be ghosts with nothing behind them
	}
	at := t.descend(t.start(s), s.Tokens[:int(min(end, whole))*t.tpb])
	leaf := none
	if end > whole {
		at, leaf = t.storePart(at, s.Tokens[int(whole)*t.tpb:s.To])
	}
	if b := t.last(at); b != messages.NoBlock {
		s.Cursor = messages.Cursor{Block: b, Life: t.blocks.life[b]}
	}
	t.retrace(at, first)
	if leaf != none {
		t.path = append(t.path, segment{leaf, 0, 1})
	}
	t.attribute(&o)
	for p := range t.pools {
		t.attach(&o, p)
	}
	for _, g := range t.path {
		if g.lo == 0 {
			t.bubble(g.node)
		}
	}
}

// last is the block before a place, or NoBlock at a root.
func (t *Tree) last(at place) messages.BlockID {
	if at.i == 0 {
		return messages.NoBlock
	}
	return t.ids(at.node)[at.i-1]
}

// start is where the tokens of s before From, or fewer of them, end: at its
// cursor or above it if the cursor's block is alive, else at the root.
func (t *Tree) start(s *messages.StoreItem) place {
	c := s.Cursor
	if s.From == 0 || c.Life == 0 || !t.alive(c.Block) || t.blocks.life[c.Block] != c.Life {
		return place{t.plant(s.Namespace), 0}
	}
	depth := min(t.blocks.depth[c.Block]+1, int32(s.From/t.tpb))
	x := t.blocks.node[c.Block]
	for t.nodes[x].depth >= depth {
		x = t.parentOf(x)
	}
	return place{x, depth - t.nodes[x].depth}
}

// descend follows tokens, which start at the root and are whole blocks, from
// at on, and makes what is not there, as blocks that no pool holds yet.
func (t *Tree) descend(at place, tokens []messages.Token) place {
	rest := tokens[int(t.nodes[at.node].depth+at.i)*t.tpb:]
	for len(rest) > 0 {
		if at.i < t.nodes[at.node].n {
			run := t.tokens(at.node)[int(at.i)*t.tpb:]
			n := firstDifference(run, rest) / t.tpb
			at.i += int32(n)
			rest = rest[n*t.tpb:]
			if len(rest) > 0 && at.i < t.nodes[at.node].n {
				at.node = t.split(at.node, at.i)
			}
			continue
		}
		if x := t.child(at.node, rest[:t.tpb]); x != none {
			at = place{x, 0}
			continue
		}
		nd := &t.nodes[at.node]
		if nd.kids == none && nd.root == none {
			t.extend(at.node, rest)
		} else {
			at.node = t.grow(at.node, rest)
		}
		return place{at.node, t.nodes[at.node].n}
	}
	return at
}

// storePart finds or makes the block stored in part with these tokens behind at.
func (t *Tree) storePart(at place, tokens []messages.Token) (before place, leaf int32) {
	if at.i < t.nodes[at.node].n {
		at.node = t.split(at.node, at.i)
	}
	leaf = t.child(at.node, tokens)
	if leaf == none {
		leaf = t.growPart(at.node, tokens)
	}
	return at, leaf
}

// retrace leaves in t.path the way from block first to at, which may be none.
func (t *Tree) retrace(at place, first int32) {
	t.path = t.path[:0]
	for x, hi := at.node, at.i; t.nodes[x].depth+hi > first; hi = t.nodes[x].n {
		lo := max(0, first-t.nodes[x].depth)
		t.path = append(t.path, segment{x, lo, hi})
		if lo > 0 || t.nodes[x].depth == 0 {
			break
		}
		x = t.parentOf(x)
	}
	for i, j := 0, len(t.path)-1; i < j; i, j = i+1, j-1 {
		t.path[i], t.path[j] = t.path[j], t.path[i]
	}
}

// attribute gives what is offered its stamps, sessions, priorities and timers.
func (t *Tree) attribute(o *offer) {
	t.cover.read(o.Retention, o.Prompt, t.tpb)
	for _, g := range t.path {
		for i := g.lo; i < g.hi; i++ {
			d := t.nodes[g.node].depth + i
			if !o.offers(d) {
				continue
			}
			b := t.ids(g.node)[i]
			term, covered := t.cover.of(d)
			if t.holds(g.node, i) {
				t.share(b, o.Session)
				if covered && int(d) >= o.Anew {
					t.prioritize(b, term.priority)
					t.timers.start(b, o.now, term.duration)
				}
				continue
			}
			if !covered {
				term.priority = messages.DefaultPriority
			}
			t.held++
			t.blocks.session[b] = t.sessions.join(o.Session)
			t.blocks.priority[b] = term.priority
			t.timers.start(b, o.now, term.duration)
		}
	}
}

// attach gives pool p the pages it is offered: of blocks it lacks, and of those
// it keeps in host memory only.
func (t *Tree) attach(o *offer, p int) {
	for _, g := range t.path {
		if *t.count(g.node, p, messages.Secondary) > 0 {
			t.yield(o, g, p)
		}
	}
	for _, g := range t.path {
		if *t.count(g.node, p, messages.Primary) == t.nodes[g.node].n {
			continue
		}
		depth := t.nodes[g.node].depth
		for i := g.lo; i < g.hi; i++ {
			page := o.page(p, depth+i)
			if page == messages.NoPage {
				continue
			}
			_, tier, held := t.locations(g.node, p)[i].Page()
			if held && tier == messages.Primary {
				continue // the stored page stays, the sequence keeps a duplicate
			}
			t.put(g.node, i, p, messages.OnDevice(page))
			t.effect(messages.Attach, p, t.ids(g.node)[i], page)
			if held {
				t.tellTier(t.ids(g.node)[i], p, messages.Primary)
			} else {
				// What is stored already is not stored again: it keeps its stamp.
				t.blocks.stamp[t.ids(g.node)[i]] = o.stamp
				t.tellStored(g.node, i, p)
			}
		}
	}
}

// yield tells the offloader which of its contents device pages replace.
func (t *Tree) yield(o *offer, g segment, p int) {
	depth := t.nodes[g.node].depth
	for i := g.lo; i < g.hi; i++ {
		_, tier, held := t.locations(g.node, p)[i].Page()
		if held && tier == messages.Secondary && o.page(p, depth+i) != messages.NoPage {
			t.effect(messages.HostYield, p, t.ids(g.node)[i], messages.NoPage)
		}
	}
}
