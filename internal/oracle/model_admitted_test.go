package oracle

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// recognise tells the blocks that an admission reuses whole of it, and the
// source of its copy.
func (a *admission) recognise(pl *plan, s *sequence) {
	for _, b := range pl.lead {
		if b == nil || !a.tree.alive(b) {
			continue
		}
		a.tree.touch(b)
		mergeSession(b, s.session)
		a.tree.retain(b, s)
		a.saver.saveReused(b)
	}
	if pl.partial == messages.PartialCopy && a.tree.alive(pl.match.source) {
		a.tree.touch(pl.match.source)
	}
}

// admitted is the answer to an admission, which it counts.
func (a *admission) admitted(pl *plan, s *sequence) messages.Admitted {
	answer := messages.Admitted{
		Sequence: s.id, ReusedTokens: pl.match.tokens, Tables: tablesOf(s),
		MissReason: pl.missReason, AttentionTokens: pl.attention, Checkpoints: s.wanted,
	}
	partial := 0
	if pl.match.source != nil {
		partial = 1
	}
	for _, p := range a.pools {
		if !p.attends() {
			answer.Reuse = append(answer.Reuse, a.stateReuse(pl, p))
			p.counters.Missed += int64(ceil(s.prompt, a.tpb) - s.reused - partial)
			continue
		}
		r := messages.PoolReuse{Partial: partial, PartialReuse: pl.partial}
		for index, spot := range pl.claims[p.id] {
			if spot != nil {
				r.Full++
			}
			if pl.onboards[p.id][index] != nil {
				r.Onboarded++
			}
		}
		if pl.partial == messages.PartialTakeover && pl.fromHost[p.id] {
			r.Onboarded++
		}
		p.counters.ReusedFull += int64(r.Full)
		p.counters.ReusedPartial += int64(partial)
		p.counters.Missed += int64(ceil(s.prompt, a.tpb) - s.reused - partial)
		answer.Reuse = append(answer.Reuse, r)
	}
	a.requests++
	a.promptTokens += int64(s.prompt)
	a.reusedTokens += int64(pl.match.tokens)
	a.countPrompt(&answer, s.prompt)
	return answer
}

// countPrompt counts a prompt by its lengths, its reason and the memory of what it reused.
func (a *admission) countPrompt(answer *messages.Admitted, length int) {
	n := &a.prompts
	for counts, tokens := range map[*inspect.TokenCounts]int{
		&n.Lengths: length, &n.Reused: answer.ReusedTokens, &n.Computed: length - answer.ReusedTokens,
	} {
		place := 0
		for place < len(counts)-1 && tokens > counts.Bound(place) {
			place++
		}
		counts[place]++
	}
	reasons := inspect.MissReasons()
	n.Missed[slices.Index(reasons[:], answer.MissReason)] += int64(length - answer.ReusedTokens)
	onHost := 0
	for _, r := range answer.Reuse {
		onHost = max(onHost, r.Onboarded*a.tpb)
	}
	n.HostTokens += int64(min(onHost, answer.ReusedTokens))
}

// stateReuse is what an admission reuses in a state pool, which it counts.
func (a *admission) stateReuse(pl *plan, p *pool) messages.PoolReuse {
	if pl.stateBlock() == nil {
		return messages.PoolReuse{PartialReuse: messages.PartialNone}
	}
	p.counters.ReusedPartial++
	return messages.PoolReuse{Partial: 1, PartialReuse: messages.PartialCopy}
}

// wantedCheckpoints are the positions of the prompt at which a commit that ends
// there makes a checkpoint: the branch, half of what leads to it where eviction has cut, the last
// block boundary, and every multiple of the interval.
func (a *admission) wantedCheckpoints(pl *plan) []int {
	if !a.recurrent() || !a.cfg.BlockReuse {
		return nil
	}
	reused, length := pl.match.tokens, len(pl.prompt.key)
	var wanted []int
	want := func(position int) {
		if position > reused && position < length && !slices.Contains(wanted, position) {
			wanted = append(wanted, position)
		}
	}
	branch := pl.attention / a.tpb * a.tpb
	want(branch)
	if pl.reach > pl.attention && a.tree.lacking(pl.prompt, pl.reach) && branch > reused {
		want((reused + branch) / 2 / a.tpb * a.tpb)
	}
	want((length - 1) / a.tpb * a.tpb)
	if n := a.cfg.CheckpointInterval; n > 0 {
		for position := n; position < length; position += n {
			want(position)
		}
	}
	slices.Sort(wanted)
	return wanted
}
