package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A Lookup says what an admission of a prompt would reuse, and changes nothing. It is matched and
// claimed like a prompt of an admission, and gives the claims back:
//
//	start ─▶ (see batch.go) ─▶ decide, as an admission would ─▶ unclaiming ─▶ answer
//
// Its sequence has the tokens and tables as long as the request is served. No host gets its id.

// startLookup enters the prefix: it is matched as an admission would match it.
func (a *admission) startLookup(r *messages.Lookup) {
	a.lookup = r
	r.Found, r.MissReason = messages.Found{}, messages.ReasonDisabled
	a.counted = false
	r.Err = a.batch.addPrefix(&r.Prefix, a.config.reusable(len(r.Prefix.Tokens)))
}

// decideLookup counts what an admission would reuse and gives the claims back. An
// admission that would be refused anyhow would reuse what is stored.
func (a *admission) decideLookup() {
	b := a.batch
	it := &b.items[0]
	again := a.counted // it has been matched again, with less
	if !again {
		a.countFound()
		a.counted = true
	}
	// Without its source a prompt may match fewer whole blocks, when a window then reaches
	// further back; without a page for the copy of its checkpoint it matches nothing.
	if b.withdrawUnusable(0) {
		return
	}
	// What counts is what the admission would do: it goes with less only if it is admitted
	// then. If it does not fit even so, it would be refused, and what is stored is the better
	// answer.
	if again {
		b.plan(0)
		if refusal := b.checkCapacity(it); refusal == nil {
			a.lookup.Found = messages.Found{}
			a.countFound()
		}
	}
	// Unclaim and not drop: it leaves no use, as if the lookup had never been.
	a.out.pools.reset()
	b.unclaim(it, it.pools)
	a.wait(a, "unclaiming", (*admission).endLookup)
	a.out.pools.send()
}

func (a *admission) endLookup() {
	a.out.pools.received()
	a.batch.end()
	a.kernel.reply()
}

// countFound counts tokens by tier: secondary if any pool that would claim the block has
// it in host memory only.
func (a *admission) countFound() {
	f, m := &a.lookup.Found, a.batch.matchOf(0)
	a.lookup.MissReason = a.config.missReason(&a.batch.items[0], m)
	tpb := a.config.TokensPerBlock
	f.MatchedTokens, f.AttentionTokens = m.Matched, a.batch.items[0].states.attention
	for b := range m.Blocks {
		// A block that one pool has on the host only counts: an admission would have to onboard it.
		if slices.ContainsFunc(m.Pages, func(at []protocol.Location) bool { return at[b].InHost() }) {
			f.SecondaryTokens += tpb
		}
	}
	// The tokens of the source: from host memory they are copied straight into the new page.
	if rest := m.Matched - m.Blocks*tpb; rest > 0 {
		if slices.ContainsFunc(m.Source.Pages[:a.self.end], protocol.Location.InHost) {
			f.SecondaryTokens += rest
		}
	}
	if s := a.batch.items[0].sequence; s.Input.Given() {
		// The padding is no match. It lies in the last block, the first to leave the
		// device.
		padding := max(0, f.MatchedTokens-int(s.Input.Length))
		f.MatchedTokens -= padding
		f.SecondaryTokens = max(0, f.SecondaryTokens-padding)
	}
	f.PrimaryTokens = f.MatchedTokens - f.SecondaryTokens
}
