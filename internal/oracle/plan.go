package oracle

import (
	"context"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// plan is what an admission will do, found out without changing anything.
type plan struct {
	request messages.AdmitRequest
	err     error

	prompt prompt
	match  match
	wanted match // before it was known whether there are pages for a copy
	// attention is what the attention pools alone would have given this prompt,
	// were it alone; 0 without state pools.
	attention  int
	reach      int
	missReason messages.MissReason
	partial    messages.PartialReuse

	lead []*block // by block: those reused whole; nil: no pool has it and none needs it
	// claims are, by pool and block, the spots claimed whole; nil: not claimed.
	claims [][]*spot
	// onboards are the spots among them that this plan brings to the device.
	onboards [][]*spot
	// fromHost tells, by pool, whether the source was in host memory only.
	fromHost []bool
}

// wholeBlocks is the number of blocks reused whole.
func (o *Oracle) wholeBlocks(pl *plan) int { return pl.match.tokens / o.tpb }

// plans matches a batch on the present state and checks its admissions in
// order. Prompts longer than longest are refused.
func (o *Oracle) plans(requests []messages.AdmitRequest, longest int) []*plan {
	var all []*plan
	for _, r := range requests {
		pl := &plan{request: r, err: o.Validate(r)}
		if pl.err == nil && len(r.Tokens) > longest {
			pl.err = refusals.New(messages.ErrTooLong, "%d tokens are more than max_seq_len %d", len(r.Tokens), longest)
		}
		if pl.err == nil {
			pl.prompt = prompt{r.Namespace, symbols(r.Tokens, r.Multimodal), len(r.Tokens) - 1}
			pl.reach = o.reach(pl.prompt)
			o.settle(pl, o.matchPartial(pl.prompt, withStates))
			pl.attention = o.attentionMatch(pl.prompt)
		}
		all = append(all, pl)
	}
	o.decideHow(all)
	for i, pl := range all {
		pl.wanted = pl.match
		if pl.err == nil {
			o.admitOrRefuse(all, i)
		}
		if pl.err == nil {
			pl.missReason = o.missReason(pl.prompt, pl.match.tokens, pl.attention, pl.reach)
		}
	}
	return all
}

// settle makes m the match of the plan.
func (o *Oracle) settle(pl *plan, m match) {
	pl.match, pl.partial = m, messages.PartialNone
	pl.lead, pl.claims = nil, make([][]*spot, len(o.pool))
	for index := range m.tokens / o.tpb {
		b := o.find(pl.prompt.namespace, pl.prompt.key[:(index+1)*o.tpb])
		pl.lead = append(pl.lead, b)
		for _, p := range o.pool {
			var s *spot
			if o.needs(p, index, m.tokens) {
				s = b.at[p.id]
			}
			pl.claims[p.id] = append(pl.claims[p.id], s)
		}
	}
}

// withoutPartial makes the plan go without partial reuse.
func (o *Oracle) withoutPartial(pl *plan) { o.settle(pl, o.matchWhole(pl.prompt, withStates)) }

// decideHow decides for each partial reuse of the batch whether the block is
// taken over, copied, or left alone. Who wants what is what the matches say,
// also those of admissions that will be refused for want of pages.
func (o *Oracle) decideHow(all []*plan) {
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
		idle := !o.busy(b) && !o.behind(b)
		switch {
		case o.cfg.CopyOnPartialReuse:
			pl.partial = messages.PartialCopy
			alone := wholly[b] == 0 && len(partly[b]) == 1
			if idle && alone && !o.whole(b) && len(b.key) <= pl.match.tokens && !o.recurrent() {
				pl.partial = messages.PartialTakeover
			}
		case idle && wholly[b] == 0 && partly[b][0] == pl:
			pl.partial = messages.PartialTakeover
		default:
			o.withoutPartial(pl)
		}
	}
}

// busy reports whether a sequence or a pin holds a page of the block.
func (o *Oracle) busy(b *block) bool {
	for _, p := range o.pool {
		if s := b.at[p.id]; s != nil && (s.pins > 0 || len(o.holders(p, s.device)) > 0) {
			return true
		}
	}
	return false
}

// admitOrRefuse decides whether the i-th admission of the batch fits, after those
// before it.
func (o *Oracle) admitOrRefuse(all []*plan, i int) {
	pl := all[i]
	if pl.partial == messages.PartialCopy {
		for _, p := range o.attentionPools() {
			if o.copyRoom(all, i, p) < 1 {
				o.withoutPartial(pl)
				break
			}
		}
	}
	for _, p := range o.statePools() {
		if o.copiesInto(pl, p) && o.copyRoom(all, i, p) < 1 {
			o.settle(pl, match{}) // the only page is the checkpoint itself
		}
	}
	o.decideOnboards(all, i)
	for _, p := range o.pool {
		available := o.available(p, o.claimed(all, i, p))
		for _, earlier := range all[:i] {
			if earlier.err == nil {
				available -= o.need(earlier, p)
			}
		}
		// A match without the partial block may claim pages that the match with
		// it did not: they may not be those that earlier copies count on.
		crowded := pl.match.source == nil && p.attends() && o.copyRoom(all, i, p) < 0
		need := o.need(pl, p)
		if need <= max(0, available) && available < 0 {
			need = -available // what it claims, a chunked prefill has reserved
		}
		if crowded || need > max(0, available) {
			pl.err = refusals.OutOfPages(p.Name, need, max(0, available))
			return
		}
	}
}

// decideOnboards finds out which spots the i-th admission brings to the device:
// those in host memory that no earlier one brings.
func (o *Oracle) decideOnboards(all []*plan, i int) {
	pl := all[i]
	pl.onboards = make([][]*spot, len(o.pool))
	for _, p := range o.pool {
		for _, s := range pl.claims[p.id] {
			var mine *spot
			if s != nil && s.device == nil && !o.onboardedEarlier(all[:i], p, s) {
				mine = s
			}
			pl.onboards[p.id] = append(pl.onboards[p.id], mine)
		}
	}
}

// onboardedEarlier reports whether an earlier admission brings the spot to the device.
func (o *Oracle) onboardedEarlier(earlier []*plan, p *pool, s *spot) bool {
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
func (o *Oracle) claimed(all []*plan, i int, p *pool) map[*page]bool {
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

// reserves reports whether the plan is a chunked prefill with a reserve in p.
func (pl *plan) reserves(p *pool) bool { return pl.request.ChunkTokens > 0 && p.limited() }

// copyRoom is how many pages of p there are for copies, when the i-th admission
// is checked: neither held nor claimed nor a source nor promised to an earlier
// copy. Sources are released before any other page is taken, so reserves do not
// count.
func (o *Oracle) copyRoom(all []*plan, i int, p *pool) int {
	kept := o.claimed(all, i, p)
	room := 0
	for j, pl := range all {
		if pl.err != nil || o.readFrom(pl, p) == nil {
			continue
		}
		if d := o.readFrom(pl, p).device; d != nil {
			kept[d] = true
		}
		if j < i && o.copiesInto(pl, p) {
			room--
		}
	}
	for _, pg := range p.device {
		if !kept[pg] && !o.used(p, pg) {
			room++
		}
	}
	return room
}

// need is the number of pages that the plan takes in p: fresh ones, copies,
// those to be onboarded, or its reserve.
func (o *Oracle) need(pl *plan, p *pool) int {
	if !p.attends() {
		return 1 // the working page
	}
	n := 0
	for _, s := range pl.onboards[p.id] {
		if s != nil {
			n++
		}
	}
	blocks := ceil(len(pl.prompt.key), o.tpb) - o.wholeBlocks(pl)
	if pl.reserves(p) {
		return n + o.reserve(p, pl.request.ChunkTokens, blocks)
	}
	if pl.partial == messages.PartialTakeover && pl.match.source.at[p.id].device != nil {
		blocks-- // its page is there already
	}
	return n + blocks
}

// Lookup tells what an admission of the same tokens would reuse, were there
// pages for it.
func (o *Oracle) Lookup(_ context.Context, q messages.Prefix) (messages.Found, error) {
	if err := o.begin(); err != nil {
		return messages.Found{}, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return messages.Found{}, err
	}
	pl := o.plans([]messages.AdmitRequest{{Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal}}, len(q.Tokens))[0]
	if pl.err != nil {
		// Refused with or without a copy: what counts is what is stored.
		o.settle(pl, pl.wanted)
	}
	found := messages.Found{MatchedTokens: pl.match.tokens, AttentionTokens: pl.attention}
	for index := range pl.lead {
		for _, p := range o.pool {
			if s := pl.claims[p.id][index]; s != nil && s.device == nil {
				found.SecondaryTokens += o.tpb
				break
			}
		}
	}
	if b := pl.match.source; b != nil {
		for _, p := range o.attentionPools() {
			if b.at[p.id].device == nil {
				found.SecondaryTokens += pl.match.tokens % o.tpb
				break
			}
		}
	}
	found.PrimaryTokens = found.MatchedTokens - found.SecondaryTokens
	return found, nil
}
