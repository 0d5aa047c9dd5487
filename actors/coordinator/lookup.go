package coordinator

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// lookup serves Lookup: it says what an admission of a prompt would reuse, and
// changes nothing.
//
//	start ─▶ claiming ─▶ (decide, as an admission would) ─▶ unclaiming ─▶ answer
//	         see batch.go
//
// Its sequence has the tokens and tables as long as the request is served. No host gets its id.
type lookup struct {
	*shared
	stages[lookup]
	batch   *promptBatch
	request *messages.Lookup
	// counted: Found has what is stored; if the prompt is looked at once more, it has been
	// matched again with less.
	counted bool
}

// start matches the prefix as an admission would.
func (l *lookup) start(request any) {
	l.request = request.(*messages.Lookup)
	r := l.request
	r.Err, r.Found, r.MissReason, l.counted = nil, messages.Found{}, messages.ReasonDisabled, false
	// The same batch as an admission's: a lookup that used a match of its own would one day say
	// something else than the admission does.
	l.batch.reset(false)
	if _, err := l.batch.addPrefix(&r.Prefix, l.config.reusable(len(r.Prefix.Tokens))); err != nil {
		r.Err = err
		l.kernel.reply()
		return
	}
	l.wait(l, "claiming", (*lookup).claiming)
	// Without block reuse nothing is stored, so nothing is found.
	if l.batch.send(); l.batch.stage == batchReady {
		l.end()
	}
}

// claiming goes on until the batch is matched and claimed.
func (l *lookup) claiming() {
	if l.batch.proceed() {
		l.decide()
	}
}

// decide counts what an admission would reuse and gives the claims back. An
// admission that would be refused anyhow would reuse what is stored.
func (l *lookup) decide() {
	b := l.batch
	it := &b.items[0]
	again := l.counted
	if !again {
		l.count()
		l.counted = true
	}
	// Without its source a prompt may match fewer whole blocks, when a window then reaches
	// further back; without a page for the copy of its checkpoint it matches nothing.
	if b.withdrawUnusable(0) {
		return
	}
	// What counts is what the admission would do: it goes with less only if it is admitted
	// then.
	if again {
		// Without its source the prompt matches less. If it does not fit even so, it would be
		// refused, and what is stored is the better answer.
		b.plan(0)
		if refusal := b.checkCapacity(it); refusal == nil {
			l.request.Found = messages.Found{}
			l.count()
		}
	}
	// Unclaim and not drop: it leaves no use, as if the lookup had never been.
	l.out.pools.reset()
	b.unclaim(it, it.pools)
	l.wait(l, "unclaiming", (*lookup).unclaimed)
	l.out.pools.send()
}

func (l *lookup) unclaimed() {
	l.out.pools.received()
	l.end()
}

// count counts tokens by tier: secondary if any pool that would claim the block has
// it in host memory only.
func (l *lookup) count() {
	f, m := &l.request.Found, l.batch.matchOf(0)
	l.request.MissReason = l.config.missReason(&l.batch.items[0], m)
	tpb := l.config.TokensPerBlock
	f.MatchedTokens, f.AttentionTokens = m.Matched, l.batch.items[0].states.attention
	// A look at every block and pool is spared when host memory holds nothing.
	if l.counts.anyOnHost() {
		for b := range m.Blocks {
			if onHost(m.Pages, b) {
				f.SecondaryTokens += tpb
			}
		}
	}
	// The tokens of the source: from host memory they are copied straight into the new page.
	if rest := m.Matched - m.Blocks*tpb; rest > 0 {
		for _, at := range m.Source.Pages[:l.self.end] {
			if _, tier, _ := at.Page(); tier == messages.Secondary {
				f.SecondaryTokens += rest
				break
			}
		}
	}
	if s := l.batch.items[0].sequence; s.Input.Given() {
		// The padding is no match. It lies in the last block, the first to leave the
		// device.
		padding := max(0, f.MatchedTokens-int(s.Input.Length()))
		f.MatchedTokens -= padding
		f.SecondaryTokens = max(0, f.SecondaryTokens-padding)
	}
	f.PrimaryTokens = f.MatchedTokens - f.SecondaryTokens
}

// onHost tells whether any pool keeps block b in host memory only. One pool is enough, because
// an admission needs the block on the device in every pool that would claim it.
func onHost(pages [][]protocol.Location, b int) bool {
	for p := range pages {
		if _, tier, _ := pages[p][b].Page(); tier == messages.Secondary {
			return true
		}
	}
	return false
}

// end ends the sequence and answers.
func (l *lookup) end() {
	l.batch.end()
	l.kernel.reply()
}

// String names the stage.
func (l *lookup) String() string {
	if l.stage == "claiming" {
		return fmt.Sprintf("lookup: claiming: %v", l.batch.stage)
	}
	return fmt.Sprintf("lookup: %v", l.stage)
}
