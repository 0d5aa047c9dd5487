package coordinator

import (
	"cmp"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// The answer of an admission: what a prompt has reused, and the counters.

// fillResult completes the sequence of an admitted prompt, fills its answer in and
// counts it. It is done when the last answer of the pools is there: until then a transfer that
// fails could still refuse the prompt.
func (a *admission) fillResult(i int) {
	it := &a.batch.items[i]
	s, r, m := it.sequence, it.result, &a.batch.match.Items[it.self]
	// From here on the reserve counts: until now the batch has counted it.
	s.Admit(func(p int) sequence.PageCount { return sequence.PageCount(it.plans[p].reserve) })
	s.Cursor = m.Cursor
	r.Sequence, r.ReusedTokens, r.MissReason = s.ID(), m.Matched, a.config.missReason(it, m)
	// Prompts that are refused count by noteRefusal instead.
	lost := a.lossOf(it, m)
	a.pressure.noteMatch(m, int(s.Prompt), lost)
	if !a.states.empty() {
		a.planCheckpoints(it, m.Matched)
	}
	onboarded := 0
	for p := range a.config.Pools {
		r.Reuse = append(r.Reuse, a.reuseIn(it, p))
		// Blocks of the encoder's input are no tokens of the prompt.
		if p < a.decoder.end {
			onboarded = max(onboarded, r.Reuse[p].Onboarded)
		}
	}
	// The pool that copied most decides, since the others waited for it.
	a.count(it, min(m.Matched, onboarded*a.config.TokensPerBlock), lost.states+lost.evicted)
	// A copy: the host may keep the answer while the tables change.
	r.Tables = s.CopyTables(r.Tables)
	if it.cross >= 0 {
		a.fillInput(it)
	}
}

// lossOf finds why a prompt computes tokens again that it could have reused.
func (a *admission) lossOf(it *prompt, m *protocol.MatchItem) (l loss) {
	limit := a.config.reusable(int(it.sequence.Prompt))
	if it.again || !a.config.Reuse || m.Matched >= a.config.wholeTokens(limit) || !a.stats.evicted() ||
		sequence.HoldsSymbols(it.sequence) {
		return l
	}
	attention := max(m.Matched, it.states.attention)
	short, long := a.thrash.known(&it.sequence.Namespace, it.sequence.Tokens(0)[:limit], attention)
	if a.states.empty() {
		l.evicted = max(0, long-m.Matched)
		return l
	}
	l.states = max(0, short-m.Matched)
	l.unmade = attention - max(short, m.Matched)
	l.evicted = max(0, long-attention)
	return l
}

// fillStored answers a prompt of which only what is stored was to be admitted: the sequence ends
// with it. Where nothing is stored the sequence has nothing to hold, and ends here.
func (a *admission) fillStored(i int) {
	it := &a.batch.items[i]
	a.fillResult(i)
	s, r := it.sequence, it.result
	if r.Checkpoints = r.Checkpoints[:0]; r.ReusedTokens > 0 {
		if rest := sequence.Cut(s, sequence.TokenCount(r.ReusedTokens)); rest != nil {
			a.out.symbols = append(a.out.symbols, rest)
		}
		return
	}
	a.out.end(s)
	r.Sequence, it.sequence = 0, nil
}

// count counts an admitted prompt, of which tokens were copied from host memory, and others had
// been evicted a short while before.
func (a *admission) count(it *prompt, onHost, thrashed int) {
	if it.again {
		a.stats.Readmissions++
		return
	}
	length, reused := int(it.sequence.Prompt), it.result.ReusedTokens
	a.stats.Requests++
	a.stats.PromptTokens += int64(length)
	a.stats.ReusedTokens += int64(reused)
	a.stats.ThrashTokens += int64(thrashed)
	a.stats.Prompts.Note(length, reused, onHost, it.result.MissReason)
	a.thrash.count(length, thrashed)
}

// countersOf are the counters of a pool in which the blocks of a prompt count. Those of a
// prompt that was admitted before count nowhere.
func (a *admission) countersOf(it *prompt, p int) *inspect.PoolCounters {
	if it.again {
		return &inspect.PoolCounters{}
	}
	return a.stats.pool(p)
}

// endRefused answers a refused prompt and ends its sequence.
func (a *admission) endRefused(it *prompt) {
	if it.sequence == nil {
		return
	}
	// The arrays of the result stay for the next request that uses the record.
	*it.result = messages.Admitted{Err: it.refused, Reuse: it.result.Reuse[:0],
		Tables: it.result.Tables[:0], Ready: it.result.Ready[:0], Checkpoints: it.result.Checkpoints[:0]}
	a.out.end(it.sequence)
	it.sequence = nil
}

// reuseIn says what a prompt reuses in a pool, and counts it. Each block of the prompt counts
// once: as reused whole, as reused in part, as missed, or, if the match goes on behind it and
// the window has passed it, not at all.
func (a *admission) reuseIn(it *prompt, p int) messages.PoolReuse {
	pl, counters := &it.plans[p], a.countersOf(it, p)
	if a.states.has(p) {
		return a.stateReuse(it, p)
	}
	reuse := messages.PoolReuse{Full: pl.whole, PartialReuse: messages.PartialNone,
		Onboarded: pl.onboarded}
	blocks := a.config.blocks(int(it.sequence.Prompt))
	switch {
	// In a cross pool the blocks of the input count, and none is reused in part.
	case p >= a.self.end:
		blocks = pl.blocks
	// A takeover from host memory brings the page to the device, beside those counted whole.
	case it.reuse != messages.PartialNone:
		reuse.Partial, reuse.PartialReuse = 1, it.reuse
		if it.reuse == messages.PartialTakeover && pl.inspect < 0 {
			reuse.Onboarded++
		}
	}
	counters.ReusedFull += int64(pl.whole)
	counters.ReusedPartial += int64(reuse.Partial)
	counters.Missed += int64(blocks - pl.reused - reuse.Partial)
	return reuse
}

// stateReuse says what a prompt reuses in a state pool, and counts it. What it missed
// are the blocks that it computes again, as in other pools. One checkpoint stands for all
// tokens before it, whatever their number, and its page is copied; so it counts as one block
// reused in part.
func (a *admission) stateReuse(it *prompt, p int) messages.PoolReuse {
	m, counters := &a.batch.match.Items[it.self], a.countersOf(it, p)
	missed := a.config.blocks(int(it.sequence.Prompt)) - m.Blocks
	if m.Source.Block != protocol.NoBlock {
		// The attention pools reuse a part of this block and count it so; here it is no block
		// that was computed from its beginning.
		missed--
	}
	counters.Missed += int64(missed)
	if m.Checkpoint == protocol.NoBlock {
		return messages.PoolReuse{PartialReuse: messages.PartialNone}
	}
	counters.ReusedPartial++
	return messages.PoolReuse{Partial: 1, PartialReuse: messages.PartialCopy}
}

// planCheckpoints says where commits of the prompt make checkpoints. The host is told of the
// positions, because a checkpoint is made only if a commit ends exactly there: its chunks have
// to end there, too.
func (a *admission) planCheckpoints(it *prompt, reused int) {
	s, r := it.sequence, it.result
	r.AttentionTokens = it.states.attention
	r.Checkpoints = r.Checkpoints[:0]
	// Without reuse nothing is stored that a checkpoint could belong to.
	if a.config.Reuse {
		m := &a.batch.match.Items[it.self]
		s.PlanCheckpoints(sequence.CheckpointRule{
			Reused: reused, Attention: it.states.attention, Interval: cmp.Or(a.config.CheckpointInterval,
				a.pressure.spacing.interval),
			Cut: m.Lacking && m.Reach > it.states.attention,
		})
		r.Checkpoints = append(r.Checkpoints, s.Checkpoints()...)
	}
}

// fillInput completes what the answer says of the encoder's input.
func (a *admission) fillInput(it *prompt) {
	s, m := it.sequence, &a.batch.match.Items[it.cross]
	s.Input.Computed = sequence.TokenCount(m.Blocks * a.config.TokensPerBlock)
	// A match of the whole input includes the padding of its last block, which is no token of
	// the host.
	it.result.Cross = &messages.CrossAdmitted{
		ReusedTokens: min(m.Matched, int(s.Input.Length)), Table: it.result.Tables[a.cross.first][0],
		Ready: it.inputReady,
	}
}

// missReason says how a prompt met the cache. What the attention pools could have given
// counts as matched for all reasons but one: that a state was missing.
func (c *Config) missReason(it *prompt, m *protocol.MatchItem) messages.MissReason {
	attention := it.states.attention
	matched := max(m.Matched, attention)
	switch {
	case !c.Reuse:
		return messages.ReasonDisabled
	// A match that ends inside a block needs a block that ends there, so a checkpoint at
	// the last boundary before is all that one could expect.
	case m.Matched < attention && (m.Matched == 0 || m.Matched < c.wholeTokens(attention)):
		return messages.ReasonNoState
	// Reach says how far the tree knows the prompt at all, in any pool; what lies between
	// the match and the reach was lost by some pool.
	case m.Reach == 0:
		return messages.ReasonCold
	case matched == m.Reach:
		return messages.ReasonHit
	case m.Lacking:
		return messages.ReasonEvicted
	default:
		return messages.ReasonWindowHole
	}
}
