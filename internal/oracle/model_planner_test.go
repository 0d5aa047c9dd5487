package oracle

import (
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// planner finds out what admissions will do, and refuses those that there are no pages
// for. It changes nothing.
type planner struct {
	*layout
	tree       *tree
	references *references
}

// plans matches a batch on the present state and checks its admissions in
// order. Prompts longer than longest are refused.
func (pr *planner) plans(requests []messages.AdmitRequest, longest int) []*plan {
	var all []*plan
	for _, r := range requests {
		pl := &plan{request: r, err: pr.validate(r)}
		if pl.err == nil && len(r.Tokens) > longest {
			pl.err = refusals.New(messages.ErrTooLong, "%d tokens are more than max_seq_len %d",
				len(r.Tokens), longest)
		}
		if pl.err == nil {
			pl.prompt = prompt{r.Namespace, symbols(r.Tokens, r.Multimodal), len(r.Tokens) - 1}
			pl.reach = pr.tree.reach(pl.prompt)
			pr.setMatch(pl, pr.tree.matchPartial(pl.prompt, withStates))
			pl.attention = pr.attentionMatch(pl.prompt)
		}
		all = append(all, pl)
	}
	pr.decideHow(all)
	for i, pl := range all {
		pl.wanted = pl.match
		if pl.err == nil {
			pr.admitOrRefuse(all, i)
		}
		if pl.err == nil {
			pl.missReason = pr.tree.missReason(pl.prompt, pl.match.tokens, pl.attention, pl.reach)
		}
	}
	return all
}

// setMatch makes m the match of the plan.
func (pr *planner) setMatch(pl *plan, m match) {
	pl.match, pl.partial = m, messages.PartialNone
	pl.lead, pl.claims = nil, make([][]*spot, len(pr.pools))
	for index := range m.tokens / pr.tpb {
		b := pr.tree.find(pl.prompt.namespace, pl.prompt.key[:(index+1)*pr.tpb])
		pl.lead = append(pl.lead, b)
		for _, p := range pr.pools {
			var s *spot
			if pr.needs(p, index, m.tokens) {
				s = b.at[p.id]
			}
			pl.claims[p.id] = append(pl.claims[p.id], s)
		}
	}
}

// withoutPartial makes the plan go without partial reuse.
func (pr *planner) withoutPartial(pl *plan) {
	pr.setMatch(pl, pr.tree.matchWhole(pl.prompt, withStates))
}

// decideHow decides for each partial reuse of the batch whether the block is
// taken over, copied, or left alone. Who wants what is what the matches say,
// also those of admissions that will be refused for want of pages.
func (pr *planner) decideHow(all []*plan) {
	wholly, partly := map[*block]int{}, map[*block][]*plan{}
	for _, pl := range all {
		for _, b := range pl.lead {
			if b != nil {
				wholly[b]++
			}
		}
		if b := pl.match.source; b != nil {
			partly[b] = append(partly[b], pl)
		}
	}
	for _, pl := range all {
		b := pl.match.source
		if b == nil {
			continue
		}
		idle := !pr.references.busy(b) && !pr.tree.behind(b)
		switch {
		case pr.cfg.CopyOnPartialReuse:
			pl.partial = messages.PartialCopy
			alone := wholly[b] == 0 && len(partly[b]) == 1
			if idle && alone && !pr.whole(b) && len(b.key) <= pl.match.tokens && !pr.recurrent() {
				pl.partial = messages.PartialTakeover
			}
		case idle && wholly[b] == 0 && partly[b][0] == pl:
			pl.partial = messages.PartialTakeover
		default:
			pr.withoutPartial(pl)
		}
	}
}

// spots are what a match of all the tokens, in whole blocks, would claim.
func (pr *planner) spots(q messages.Prefix) (spots []pinnedSpot, tokens int) {
	all := prompt{q.Namespace, symbols(q.Tokens, q.Multimodal), len(q.Tokens)}
	pl := &plan{prompt: all}
	pr.setMatch(pl, pr.tree.matchWhole(all, withStates))
	for _, p := range pr.pools {
		for index, s := range pl.claims[p.id] {
			if s != nil {
				spots = append(spots, pinnedSpot{p, pl.lead[index], s})
			}
		}
	}
	for _, p := range pr.statePools() {
		if s := pl.readFrom(p); s != nil {
			spots = append(spots, pinnedSpot{p, pl.stateBlock(), s})
		}
	}
	return spots, pl.match.tokens
}

// attentionMatch is what the attention pools alone would give the prompt. A source
// that could not be taken over does not count where nothing is copied.
func (pr *planner) attentionMatch(q prompt) int {
	if !pr.recurrent() {
		return 0
	}
	m := pr.tree.matchPartial(q, withoutStates)
	if b := m.source; b != nil && !pr.cfg.CopyOnPartialReuse &&
		(pr.references.busy(b) || pr.tree.behind(b)) {
		m = pr.tree.matchWhole(q, withoutStates)
	}
	return m.tokens
}
