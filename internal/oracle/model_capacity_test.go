package oracle

import (
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// admitOrRefuse decides whether the i-th admission of the batch fits, after those
// before it.
func (pr *planner) admitOrRefuse(all []*plan, i int) {
	pl := all[i]
	if pl.partial == messages.PartialCopy {
		for _, p := range pr.attentionPools() {
			if pr.copyRoom(all, i, p) < 1 {
				pr.withoutPartial(pl)
				break
			}
		}
	}
	if pr.onlyCheckpointsLeft(all, i) {
		pr.setMatch(pl, match{})
	}
	pr.decideOnboards(all, i)
	for _, p := range pr.pools {
		available := pr.left(all, i, p)
		// A match without the partial block may claim pages that the match with
		// it did not: they may not be those that earlier copies count on.
		crowded := pl.match.source == nil && p.attends() && pr.copyRoom(all, i, p) < 0
		need := pr.need(pl, p)
		if need <= max(0, available) && available < 0 {
			need = -available // what it claims, a chunked prefill has reserved
		}
		if crowded || need > max(0, available) {
			pl.err = refusals.OutOfPages(p.Name, need, max(0, available))
			return
		}
	}
}

// left is the pages of p that the admissions before the i-th leave.
func (pr *planner) left(all []*plan, i int, p *pool) int {
	n := pr.references.available(p, pr.claimed(all, i, p))
	for _, earlier := range all[:i] {
		if earlier.err == nil {
			n -= pr.need(earlier, p)
		}
	}
	return n
}

// onlyCheckpointsLeft reports whether the i-th admission copies a checkpoint and finds, in some
// state pool, no page for it but checkpoints that are to be copied. It is false where a state
// pool has no page at all.
func (pr *planner) onlyCheckpointsLeft(all []*plan, i int) bool {
	only := false
	for _, p := range pr.statePools() {
		if !all[i].copiesInto(p) || pr.left(all, i, p) < 1 {
			return false
		}
		only = only || pr.copyRoom(all, i, p) < 1
	}
	return only
}

// decideOnboards finds out which spots the i-th admission brings to the device:
// those in host memory that no earlier one brings.
func (pr *planner) decideOnboards(all []*plan, i int) {
	pl := all[i]
	pl.onboards = make([][]*spot, len(pr.pools))
	for _, p := range pr.pools {
		for _, s := range pl.claims[p.id] {
			var mine *spot
			if s != nil && s.device == nil && !pr.onboardedEarlier(all[:i], p, s) {
				mine = s
			}
			pl.onboards[p.id] = append(pl.onboards[p.id], mine)
		}
	}
}

// onboardedEarlier reports whether an earlier admission brings the spot to the device.
func (pr *planner) onboardedEarlier(earlier []*plan, p *pool, s *spot) bool {
	for _, pl := range earlier {
		if pl.err != nil {
			continue
		}
		for _, t := range pl.onboards[p.id] {
			if t == s {
				return true
			}
		}
	}
	return false
}

// claimed gives the device pages that the batch has claimed and that count as
// taken when the i-th admission is checked: those claimed whole and those to be
// taken over, but for what a reserve stands for, its own or that of an earlier
// one. Sources of copies are released before other pages are taken.
func (pr *planner) claimed(all []*plan, i int, p *pool) map[*page]bool {
	pages := map[*page]bool{}
	for j, pl := range all {
		if pl.err != nil {
			continue
		}
		for _, s := range pl.claims[p.id] {
			if s != nil && s.device != nil {
				pages[s.device] = true
			}
		}
		if pl.partial == messages.PartialTakeover && p.attends() && (j > i || !pl.reserves(p)) {
			if d := pl.match.source.at[p.id].device; d != nil {
				pages[d] = true
			}
		}
	}
	return pages
}

// copyRoom is how many pages of p there are for copies, when the i-th admission
// is checked: neither held nor claimed nor a source nor promised to an earlier
// copy. Sources are released before any other page is taken, so reserves do not
// count.
func (pr *planner) copyRoom(all []*plan, i int, p *pool) int {
	kept := pr.claimed(all, i, p)
	room := 0
	for j, pl := range all {
		if pl.err != nil || pl.readFrom(p) == nil {
			continue
		}
		if d := pl.readFrom(p).device; d != nil {
			kept[d] = true
		}
		if j < i && pl.copiesInto(p) {
			room--
		}
	}
	for _, pg := range p.device {
		if !kept[pg] && !pr.references.used(p, pg) {
			room++
		}
	}
	return room
}

// need is the number of pages that the plan takes in p: fresh ones, copies,
// those to be onboarded, or its reserve.
func (pr *planner) need(pl *plan, p *pool) int {
	if !p.attends() {
		return 1 // the working page
	}
	n := 0
	for _, s := range pl.onboards[p.id] {
		if s != nil {
			n++
		}
	}
	blocks := ceil(len(pl.prompt.key), pr.tpb) - pl.wholeBlocks()
	if pl.reserves(p) {
		return n + pr.reserve(p, pl.request.ChunkTokens, blocks)
	}
	if pl.partial == messages.PartialTakeover && pl.match.source.at[p.id].device != nil {
		blocks-- // its page is there already
	}
	return n + blocks
}
