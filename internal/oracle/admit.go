package oracle

import (
	"context"

	"github.com/kvactor/kvactor/messages"
)

// Admit takes one sequence in.
func (o *Oracle) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	all, err := o.AdmitBatch(ctx, []messages.AdmitRequest{r})
	if err != nil {
		return messages.Admitted{}, err
	}
	if err := all[0].Err; err != nil {
		return messages.Admitted{}, err
	}
	return all[0], nil
}

// AdmitBatch takes sequences in; the refusal of one is in its answer.
func (o *Oracle) AdmitBatch(_ context.Context, requests []messages.AdmitRequest) ([]messages.Admitted, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	o.storeTier.fetchBefore(requests)
	all := o.plans(requests, o.cfg.MaxSeqLen)
	sequences := o.carryOut(all)
	answers := make([]messages.Admitted, len(all))
	for i, pl := range all {
		if pl.err != nil {
			answers[i] = messages.Admitted{Err: pl.err}
			continue
		}
		o.recognise(pl, sequences[i])
		answers[i] = o.admitted(pl, sequences[i])
	}
	return answers, nil
}

// carryOut claims, takes pages and moves contents for the admissions that fit.
func (o *Oracle) carryOut(all []*plan) []*sequence {
	sequences := make([]*sequence, len(all))
	for i, pl := range all { // claims
		if pl.err == nil {
			sequences[i] = o.claim(pl, use{o.request, i})
		}
	}
	for i, pl := range all { // copies, while no source can be a victim
		for _, p := range o.pool {
			if pl.err == nil && o.copiesInto(pl, p) {
				o.place(p, sequences[i], o.copiedBlock(pl, p), o.take(p, pl.request.Namespace.Salt))
			}
		}
	}
	o.releaseSources(all, sequences)
	for i, pl := range all { // all other pages
		if pl.err == nil {
			o.takeRest(pl, sequences[i], all, sequences)
		}
	}
	for i, pl := range all {
		if pl.err == nil {
			o.arrive(pl, sequences[i])
		}
	}
	for _, pl := range all { // what was taken over is forgotten
		if pl.err == nil && pl.partial == messages.PartialTakeover {
			o.forgetAll(pl.match.source)
		}
	}
	return sequences
}

// claim makes the sequence, with what is on the device in its tables, and guards
// what it will read.
func (o *Oracle) claim(pl *plan, u use) *sequence {
	r := pl.request
	o.lastSequence++
	s := &sequence{
		id: o.lastSequence, namespace: r.Namespace, session: r.Session, retention: r.Retention,
		settled: map[string]bool{}, prompt: len(r.Tokens), reused: o.wholeBlocks(pl),
		chunk: r.ChunkTokens, computed: pl.match.tokens, last: u,
	}
	for range max(1, r.BeamWidth) {
		s.keys = append(s.keys, append([]symbol(nil), pl.prompt.key...))
	}
	s.wanted = o.wantedCheckpoints(pl)
	for _, p := range o.pool {
		if !p.attends() {
			o.claimState(pl, s, p)
			continue
		}
		blocks := ceil(s.prompt, o.tpb)
		if s.chunk > 0 && p.limited() {
			blocks = ceil(o.target(s), o.tpb)
		}
		var beams [][]*page
		for range s.keys {
			beams = append(beams, make([]*page, blocks))
		}
		s.tables = append(s.tables, beams)
		for index, spot := range pl.claims[p.id] {
			if spot != nil && spot.device != nil {
				o.place(p, s, index, spot.device)
			} else if spot != nil {
				o.guarded[spot.host] = true
			}
		}
		if pl.match.source == nil {
			continue
		}
		from := pl.match.source.at[p.id]
		pl.fromHost = append(pl.fromHost, from.device == nil)
		switch {
		case from.device == nil:
			o.guarded[from.host] = true
		case pl.partial == messages.PartialTakeover:
			o.place(p, s, s.reused, from.device)
		default:
			o.guarded[from.device] = true
		}
	}
	o.sequences = append(o.sequences, s)
	return s
}

// place puts a page into the tables of all beams.
func (o *Oracle) place(p *pool, s *sequence, index int, pg *page) {
	for _, table := range s.tables[p.id] {
		table[index] = pg
	}
}

// releaseSources ends the guard over device pages that were copied from: they may
// be victims from now on, used at this request.
func (o *Oracle) releaseSources(all []*plan, sequences []*sequence) {
	for i, pl := range all {
		for _, p := range o.pool {
			if pl.err == nil && o.copiesInto(pl, p) {
				s := o.readFrom(pl, p)
				o.spend(s, sequences[i].last)
				delete(o.guarded, s.device)
			}
		}
	}
}

// takeRest takes the pages for what comes from host memory and for all tokens
// that are not reused. What one admission brings in, the others that claimed it
// hold too.
func (o *Oracle) takeRest(pl *plan, s *sequence, all []*plan, sequences []*sequence) {
	for _, p := range o.pool {
		if !p.attends() {
			if s.tables[p.id][0][0] == nil {
				o.place(p, s, 0, o.take(p, s.namespace.Salt))
			}
			continue
		}
		for index, spot := range pl.onboards[p.id] {
			if spot == nil {
				continue
			}
			pg := o.take(p, s.namespace.Salt)
			for j, other := range all {
				if other.err == nil && index < len(other.claims[p.id]) && other.claims[p.id][index] == spot {
					o.place(p, sequences[j], index, pg)
				}
			}
		}
		for index := s.reused; index < len(s.tables[p.id][0]); index++ {
			if s.tables[p.id][0][index] == nil {
				o.place(p, s, index, o.take(p, s.namespace.Salt))
			}
		}
	}
}

// arrive brings contents to the pages taken for them.
func (o *Oracle) arrive(pl *plan, s *sequence) {
	for _, p := range o.pool {
		for index, spot := range pl.onboards[p.id] {
			if spot != nil {
				o.onboard(p, pl.lead[index], s.tables[p.id][0][index])
			}
		}
		if pl.partial == messages.PartialTakeover && p.attends() && pl.fromHost[p.id] {
			o.countOnboard(p)
		}
	}
}

// onboard makes pg the device page of b; the host page stays as a clean copy.
func (o *Oracle) onboard(p *pool, b *block, pg *page) {
	s := b.at[p.id]
	s.device = pg
	o.keepCopy(s)
	pg.block = b
	o.countOnboard(p)
	o.emitTier(p, b, messages.Primary)
}

func (o *Oracle) countOnboard(p *pool) {
	p.counters.Onboarded++
	p.counters.BytesOnboarded += p.PageBytes
}
