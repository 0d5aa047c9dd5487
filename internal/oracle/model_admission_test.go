package oracle

import (
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// admission carries out what was planned: it makes the sequences, claims and takes their
// pages, and moves contents to them.
type admission struct {
	*layout
	clock      *clock
	tree       *tree
	references *references
	memory     *memory
	saver      *saver

	requests, promptTokens, reusedTokens int64 // of all admissions so far
	prompts                              inspect.PromptStats
}

// carryOut claims, takes pages and moves contents for the admissions that fit.
func (a *admission) carryOut(all []*plan) []*sequence {
	sequences := make([]*sequence, len(all))
	for i, pl := range all { // claims
		if pl.err == nil {
			sequences[i] = a.claim(pl, use{a.clock.request, i})
		}
	}
	for i, pl := range all { // copies, while no source can be a victim
		for _, p := range a.pools {
			if pl.err == nil && pl.copiesInto(p) {
				sequences[i].setPage(p, pl.copiedBlock(p), a.memory.take(p, pl.request.Namespace.Salt))
			}
		}
	}
	a.releaseSources(all, sequences)
	for i, pl := range all { // all other pages
		if pl.err == nil {
			a.takeRest(pl, sequences[i], all, sequences)
		}
	}
	for i, pl := range all {
		if pl.err == nil {
			a.arrive(pl, sequences[i])
		}
	}
	for _, pl := range all { // what was taken over is forgotten
		if pl.err == nil && pl.partial == messages.PartialTakeover {
			a.tree.forgetAll(pl.match.source)
		}
	}
	return sequences
}

// claim makes the sequence, with what is on the device in its tables, and guards
// what it will read.
func (a *admission) claim(pl *plan, u use) *sequence {
	r := pl.request
	a.references.last++
	s := &sequence{
		id: a.references.last, namespace: r.Namespace, session: r.Session, retention: r.Retention,
		retentionDone: map[string]bool{}, prompt: len(r.Tokens), reused: pl.wholeBlocks(),
		chunk: r.ChunkTokens, computed: pl.match.tokens, last: u,
	}
	for range max(1, r.BeamWidth) {
		s.keys = append(s.keys, append([]symbol(nil), pl.prompt.key...))
	}
	s.wanted = a.wantedCheckpoints(pl)
	for _, p := range a.pools {
		if !p.attends() {
			a.claimState(pl, s, p)
			continue
		}
		blocks := ceil(s.prompt, a.tpb)
		if s.chunk > 0 && p.limited() {
			blocks = ceil(a.target(s), a.tpb)
		}
		var beams [][]*page
		for range s.keys {
			beams = append(beams, make([]*page, blocks))
		}
		s.tables = append(s.tables, beams)
		for index, spot := range pl.claims[p.id] {
			if spot != nil && spot.device != nil {
				s.setPage(p, index, spot.device)
			} else if spot != nil {
				a.references.guarded[spot.host] = true
			}
		}
		if pl.match.source == nil {
			continue
		}
		from := pl.match.source.at[p.id]
		pl.fromHost = append(pl.fromHost, from.device == nil)
		switch {
		case from.device == nil:
			a.references.guarded[from.host] = true
		case pl.partial == messages.PartialTakeover:
			s.setPage(p, s.reused, from.device)
		default:
			a.references.guarded[from.device] = true
		}
	}
	a.references.sequences = append(a.references.sequences, s)
	return s
}

// claimState makes the table of a state pool, empty yet, and guards the
// checkpoint that will be read.
func (a *admission) claimState(pl *plan, s *sequence, p *pool) {
	s.tables = append(s.tables, [][]*page{make([]*page, 1)})
	if from := pl.readFrom(p); from != nil && from.device != nil {
		a.references.guarded[from.device] = true
	} else if from != nil {
		a.references.guarded[from.host] = true
	}
}

// releaseSources ends the guard over device pages that were copied from: they may
// be victims from now on, used at this request.
func (a *admission) releaseSources(all []*plan, sequences []*sequence) {
	for i, pl := range all {
		for _, p := range a.pools {
			if pl.err == nil && pl.copiesInto(p) {
				s := pl.readFrom(p)
				a.memory.spend(s, sequences[i].last)
				delete(a.references.guarded, s.device)
			}
		}
	}
}

// takeRest takes the pages for what comes from host memory and for all tokens
// that are not reused. What one admission brings in, the others that claimed it
// hold too.
func (a *admission) takeRest(pl *plan, s *sequence, all []*plan, sequences []*sequence) {
	for _, p := range a.pools {
		if !p.attends() {
			if s.tables[p.id][0][0] == nil {
				s.setPage(p, 0, a.memory.take(p, s.namespace.Salt))
			}
			continue
		}
		for index, spot := range pl.onboards[p.id] {
			if spot == nil {
				continue
			}
			pg := a.memory.take(p, s.namespace.Salt)
			for j, other := range all {
				if other.err == nil && index < len(other.claims[p.id]) && other.claims[p.id][index] == spot {
					sequences[j].setPage(p, index, pg)
				}
			}
		}
		for index := s.reused; index < len(s.tables[p.id][0]); index++ {
			if s.tables[p.id][0][index] == nil {
				s.setPage(p, index, a.memory.take(p, s.namespace.Salt))
			}
		}
	}
}

// arrive brings contents to the pages taken for them.
func (a *admission) arrive(pl *plan, s *sequence) {
	for _, p := range a.pools {
		for index, spot := range pl.onboards[p.id] {
			if spot != nil {
				a.memory.onboard(p, pl.lead[index], s.tables[p.id][0][index])
			}
		}
		if pl.partial == messages.PartialTakeover && p.attends() && pl.fromHost[p.id] {
			a.memory.countOnboard(p)
		}
	}
}
