package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The answer of an admission: what a prompt has reused, and the counters.

// fillResult completes the sequence of an admitted prompt, fills its answer in and
// counts it.
func (a *admission) fillResult(i int) {
	it := &a.batch.items[i]
	s, r, m := it.sequence, it.result, &a.batch.match.Items[it.self]
	// From here on the reserve counts: until now the batch has counted it.
	s.Admit(sequence.BlockIndex(m.Blocks), sequence.TokenCount(m.Matched), func(p int) sequence.PageCount {
		return sequence.PageCount(it.plans[p].reserve)
	})
	r.Sequence, r.ReusedTokens, r.MissReason = s.ID(), m.Matched, a.reason(m)
	a.stats.Requests++
	a.stats.PromptTokens += int64(s.Prompt)
	a.stats.ReusedTokens += int64(m.Matched)
	a.pressure.noteMatch(m, int(s.Prompt))
	for p := range a.config.Pools {
		r.Reuse = append(r.Reuse, a.reuseIn(it, p))
	}
	r.Tables = s.CopyTables(r.Tables)
	if it.cross >= 0 {
		a.fillInput(it)
	}
}

// reuseIn says what a prompt reuses in a pool, and counts it.
func (a *admission) reuseIn(it *prompt, p int) messages.PoolReuse {
	pl, counters := &it.plans[p], a.stats.pool(p)
	reuse := messages.PoolReuse{Full: pl.whole, PartialReuse: messages.PartialNone, Onboarded: pl.onboarded}
	blocks := a.config.blocks(int(it.sequence.Prompt))
	switch {
	// Of a cross pool the blocks of the input count, and partial reuse is none of its.
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

// fillInput completes what the answer says of the encoder's input.
func (a *admission) fillInput(it *prompt) {
	s, m := it.sequence, &a.batch.match.Items[it.cross]
	s.Input.Admit(sequence.BlockIndex(m.Blocks))
	it.result.Cross = &messages.CrossAdmitted{
		ReusedTokens: min(m.Matched, int(s.Input.Length())), Table: it.result.Tables[a.cross.first][0], Ready: it.inputReady,
	}
}

// reason says how a prompt met the cache.
func (a *admission) reason(m *protocol.MatchItem) messages.MissReason {
	switch {
	case !a.config.Reuse:
		return messages.ReasonDisabled
	// Reach says how far the tree knows the prompt at all, in any pool; what lies between
	// the match and the reach was lost by some pool.
	case m.Reach == 0:
		return messages.ReasonCold
	case m.Matched == m.Reach:
		return messages.ReasonHit
	case m.Lacking:
		return messages.ReasonEvicted
	default:
		return messages.ReasonWindowHole
	}
}
