package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attach gives pool p the pages that it is offered: of blocks that it lacks, and of
// blocks that it keeps in host memory only.
func (t *storer) attach(o *offer, p int) {
	// Yields are reported before all pages of the pool. Effects join only while no
	// other kind comes between, and a yield between two pages would end the effect of
	// the first.
	for _, g := range t.path.segments {
		if *t.base.arena.count(g.node, p, messages.Secondary) > 0 {
			t.reportYields(o, g, p)
		}
	}
	// A count decides for the whole run: a prompt that is stored again costs one
	// comparison for each node.
	for k, g := range t.path.segments {
		depth := t.base.arena.nodes[g.node].depth
		pages := o.pages(p, depth+g.lo, depth+g.hi)
		if *t.base.arena.count(g.node, p, messages.Primary) == t.base.arena.nodes[g.node].n {
			o.kept = o.kept || len(pages) > 0
			continue // the stored pages stay, the sequence keeps duplicates
		}
		locations := t.base.arena.locations(g.node, p)[g.lo:g.hi]
		for i := 0; i < len(pages); {
			//	location     offered page
			//	device       stays with the sequence: a duplicate
			//	host         becomes the place, unless KeepOnHost lists the block
			//	nowhere      becomes the place, by runs
			switch l := locations[i]; {
			case pages[i] == messages.NoPage:
				i++
			case l > protocol.Nowhere, l < protocol.Nowhere && o.keepsOnHost(p, t.base.arena.ids(g.node)[g.lo+int32(i)]):
				o.kept = true
				i++
			case l < protocol.Nowhere:
				t.replaceHostPage(segment{g.node, g.lo + int32(i), g.lo + int32(i) + 1}, p, pages[i])
				i++
			case t.plain[k]:
				i += t.attachPlain(segment{g.node, g.lo + int32(i), g.hi}, p, pages[i:])
			default:
				i += t.attachRun(o, segment{g.node, g.lo + int32(i), g.hi}, p, pages[i:])
			}
		}
	}
}

// attachRun gives pool p pages of the first blocks of a segment: of as many as the
// pool lacks and have one priority and end, at least one. It returns their number. A
// run ends where the priority or its end differs, since an effect has one of each.
// With one retention that is a few runs for a prompt.
func (t *storer) attachRun(o *offer, s segment, p int, pages []messages.PageID) int {
	ids, locations := t.base.arena.ids(s.node)[s.lo:s.hi], t.base.arena.locations(s.node, p)[s.lo:s.hi]
	t.base.expireNow(ids[0])
	priority := t.base.blocks.priority[ids[0]]
	until, _ := t.base.timers.of(ids[0])
	n := 0
	for n < len(pages) && pages[n] != messages.NoPage && locations[n] == protocol.Nowhere {
		// The priority goes out with the effect, so one that has ended must not be
		// read.
		t.base.expireNow(ids[n])
		if end, _ := t.base.timers.of(ids[n]); t.base.blocks.priority[ids[n]] != priority || end != until {
			break
		}
		locations[n] = protocol.OnDevice(pages[n])
		// What is stored already is not stored again: it keeps its stamp.
		t.base.blocks.stamp[ids[n]] = o.stamp
		n++
	}
	t.reportAttached(segment{s.node, s.lo, s.lo + int32(n)}, p, pages[:n])
	return n
}

// attachPlain is attachRun for blocks that no pool held before the offer and that all
// have the default priority. It reads no attribute, so it costs a copy of the pages
// and nothing for each block besides.
func (t *storer) attachPlain(s segment, p int, pages []messages.PageID) int {
	locations := t.base.arena.locations(s.node, p)[s.lo:s.hi]
	n := countPages(pages[:min(len(pages), len(locations))])
	fillDevice(locations, pages[:n])
	t.reportAttached(segment{s.node, s.lo, s.lo + int32(n)}, p, pages[:n])
	return n
}

// countPages returns the number of entries before the first NoPage. Of the offers of most
// sequences that is all, so four entries have one branch: NoPage alone is negative.
func countPages(pages []messages.PageID) (n int) {
	for rest := pages; len(rest) >= 4; rest = rest[4:] {
		if r := (*[4]messages.PageID)(rest); r[0]|r[1]|r[2]|r[3] < 0 {
			break
		}
		n += 4
	}
	for n < len(pages) && pages[n] != messages.NoPage {
		n++
	}
	return n
}

// reportAttached reports that pool p has got pages of the blocks of a segment,
// which have one priority.
func (t *storer) reportAttached(s segment, p int, pages []messages.PageID) {
	*t.base.arena.count(s.node, p, messages.Primary) += s.hi - s.lo
	t.base.effects(protocol.Attach, p, t.base.arena.ids(s.node)[s.lo:s.hi], pages)
	t.base.recordStored(s, p)
}

// replaceHostPage makes a device page the place of a block whose contents were in
// host memory.
func (t *storer) replaceHostPage(s segment, p int, page messages.PageID) {
	b := t.base.arena.ids(s.node)[s.lo]
	// The pool held the block before and holds it now: no first block comes to count,
	// and the readers of events are told of a tier, not of a stored block.
	t.base.arena.setLocation(s.node, s.lo, p, protocol.OnDevice(page))
	t.base.effect(protocol.Attach, p, b, page)
	t.base.recordTier(b, p, messages.Primary)
}

// reportYields tells the offloader which of its contents device pages of the offer
// replace. From then on the host page is no place of the block. Without the effect
// the offloader would keep the page for the block until the block is forgotten.
func (t *storer) reportYields(o *offer, g segment, p int) {
	depth := t.base.arena.nodes[g.node].depth
	pages := o.pages(p, depth+g.lo, depth+g.hi)
	locations, ids := t.base.arena.locations(g.node, p)[g.lo:g.hi], t.base.arena.ids(g.node)[g.lo:g.hi]
	for i, page := range pages {
		if locations[i] < protocol.Nowhere && page != messages.NoPage && !o.keepsOnHost(p, ids[i]) {
			t.base.effect(protocol.HostYield, p, ids[i], messages.NoPage)
		}
	}
}
