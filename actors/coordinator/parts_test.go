package coordinator

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Tests of parts that requests alone do not reach.

// A queue that is never empty stays as long as it has to be.
func TestAQueueThatIsNeverEmpty(t *testing.T) {
	for _, waiting := range []int{1, 7, 100} {
		var l queue
		next, first := 0, 0
		push := func() {
			l.push(queued{request: next})
			next++
		}
		for range waiting {
			push()
		}
		for i := range 10_000 {
			push()
			var q queued
			require.True(t, l.pop(&q))
			require.Equal(t, first, q.request)
			if i%3 == 0 {
				l.pushFirst(q)
				require.True(t, l.pop(&q))
				require.Equal(t, first, q.request)
			}
			first++
			require.Equal(t, waiting, l.len())
		}
		assert.LessOrEqual(t, cap(l.items), 8*(waiting+1))
	}
}

// What a step has sent to a pool may be read only after a recovery has taken the
// step back: the pages in it must stay those that were sent.
func TestUndoneStepsLeaveSentPagesAlone(t *testing.T) {
	c := New(Config{Pools: []windows.Pool{{Name: "w4h1", Window: 4, TokensPerBlock: 4}},
		Counts: []windows.PageCounts{{Primary: 4}}, TokensPerBlock: 4}, nil)
	s := c.sequences.Open(1)
	s.Extend(make([]messages.Token, 9))
	s.SetTable(0, []messages.PageID{0, 1})
	it := served[*messages.Append, *extension](c).batch.add(s, &messages.StepResult{})
	it.extended, it.request = true, &messages.AppendStep{Tokens: make([]messages.Token, 1)}
	it.pools[0].copies = append(it.pools[0].copies, pageRewrite{block: 1, from: 1, to: 2})
	s.SetTable(0, []messages.PageID{0, 2, 3})
	sent := s.Table(0)[:2]

	served[*messages.Append, *extension](c).undo()

	assert.Equal(t, []messages.PageID{0, 1}, s.Table(0))
	assert.Equal(t, []messages.PageID{0, 2}, sent)
}

// A step whose pages are all its own has asked no pool about them, and then reads no page table. The
// step has no sequence here, so it panics if it looks for one.
func TestAStepOfOwnPagesReadsNoTable(t *testing.T) {
	c := New(Config{Pools: []windows.Pool{{Name: "w4h1", Window: 4, TokensPerBlock: 4}},
		Counts: []windows.PageCounts{{Primary: 4}}, TokensPerBlock: 4}, nil)
	e := served[*messages.Append, *extension](c)
	e.batch.reset()
	it := &step{pools: make([]stepPages, 1)}
	assert.Zero(t, e.followParents(it, 0))
	assert.Zero(t, e.findRewrites(it, 0))

	e.batch.shares[0][1] = protocol.Share{References: 2}
	assert.Panics(t, func() { e.followParents(it, 0) }, "pages were asked about")
}

// TestSignaturesNamePrefixes: equal prefixes have equal signatures, and prefixes that
// differ in a token, in their namespace or in what comes before have not.
func TestSignaturesNamePrefixes(t *testing.T) {
	tokens := make([]messages.Token, 70)
	for i := range tokens {
		tokens[i] = messages.Token(i * i)
	}
	of := func(space messages.Namespace, tokens []messages.Token) []uint64 {
		return appendSignatures(nil, &space, tokens, 16)
	}
	all := of(messages.Namespace{}, tokens)
	assert.Len(t, all, 3, "after 1, 2 and 4 blocks")
	assert.NotContains(t, all, uint64(0))
	assert.Equal(t, all[:2], of(messages.Namespace{}, tokens[:40]))
	other := append([]messages.Token{7}, tokens[1:]...)
	salted := of(messages.Namespace{Salt: "a"}, tokens)
	for i, s := range of(messages.Namespace{}, other) {
		assert.NotEqual(t, all[i], s)
		assert.NotEqual(t, all[i], salted[i])
	}
	assert.NotEqual(t, of(messages.Namespace{LoRA: "a"}, tokens), salted)
	assert.Len(t, appendSignatures(nil, &messages.Namespace{}, tokens[:7], 2), 2, "short blocks")

	long := slices.Concat(tokens, tokens, tokens, make([]messages.Token, 1000))
	const span = 256
	signatures := of(messages.Namespace{}, long)
	assert.Len(t, signatures, 4+4, "after 1, 2, 4 and 8 blocks, and four spans")
	assert.Equal(t, signatures[:6], of(messages.Namespace{}, long[:2*span]))
	assert.Len(t, of(messages.Namespace{}, long[:2*span-1]), 5)
	long[span+span/2]++
	changed := of(messages.Namespace{}, long)
	assert.Equal(t, signatures[:5], changed[:5])
	for i, s := range changed[5:] {
		assert.NotEqual(t, signatures[5+i], s)
	}
}

// The demand of a pool is the pages that it was asked for and gave: checkpoints take pages
// as prompts do, and one for which no page was found takes none.
func TestTheLookAheadCountsCheckpointsAsDemand(t *testing.T) {
	c := New(Config{Pools: []windows.Pool{{Name: "state"}},
		Counts: []windows.PageCounts{{Primary: 64}}, TokensPerBlock: 4, Ahead: true}, nil)
	c.lookAhead.noteDemand(0, &protocol.PoolWork{Ops: []protocol.PoolOp{
		{Kind: protocol.Take, N: 3, Pages: []messages.PageID{0, 1, 2}},
		{Kind: protocol.TakeForCheckpoint, Pages: []messages.PageID{3}},
		{Kind: protocol.TakeForCheckpoint},
		{Kind: protocol.Drop, Pages: []messages.PageID{0}},
	}})
	assert.Equal(t, 4, c.lookAhead.turnover[0])
	assert.True(t, c.lookAhead.due())
}

// After a failure the sequences that a request has opened end. A coordinator that broke off in
// the middle of a stage may have changed any of those that the request names, which are lost.
func TestAFailureEndsWhatARequestHasOpened(t *testing.T) {
	c := twoPools()
	c.kernel.stamp = 7
	of := func(opened, touched uint64) *sequence.Sequence {
		s := c.sequences.Open(opened)
		s.Touched = touched
		return s
	}
	for _, broken := range []bool{false, true} {
		named, other, opened := of(1, 7), of(1, 6), of(7, 0)
		c.kernel.round = round{queued: queued{request: &messages.Fork{}},
			transaction: served[*messages.Fork, *fork](c)}
		c.recovery.undoRound(Failure{Actor: "coordinator", Dirty: broken, Cause: errors.New("a panic")})
		assert.Equal(t, broken, named.IsLost())
		assert.False(t, other.IsLost())
		assert.Nil(t, c.sequences.Holder(opened.ID()), "no host knows it")
		assert.Nil(t, c.kernel.round.transaction, "it is undone once")
	}
}

// A recovery lists the symbols of each prompt once, however many sequences share them, and all
// of these lose what the tree has lost.
func TestSequencesLoseTheSymbolsThatTheTreeHasLost(t *testing.T) {
	c := twoPools()
	open := func(tokens ...messages.Token) *sequence.Sequence {
		s := c.sequences.Open(1)
		s.Begin(sequence.Origin{Prompt: sequence.TokenCount(len(tokens))}, tokens, 0)
		s.HoldSymbols()
		return s
	}
	a, b := open(-1, 5), open(-2, 6)
	fork := c.sequences.Open(1)
	a.Fork(fork)
	held := c.sequences.HeldSymbols()
	require.Len(t, held, 2)
	assert.Equal(t, []messages.Token{-1, 5}, held[0].Tokens)
	assert.Equal(t, []messages.Token{-2, 6}, held[1].Tokens)
	held[0].Lost = true
	c.sequences.ForgetSymbols(held)
	for s, holds := range map[*sequence.Sequence]bool{a: false, fork: false, b: true} {
		assert.Equal(t, holds, sequence.HoldsSymbols(s))
		assert.Equal(t, holds, !s.NoStore)
	}
}

// TestFactsOfARequest: pools learn of a request what it was, as far as it was computed, and what
// its admission has reused.
func TestFactsOfARequest(t *testing.T) {
	c := New(Config{Pools: []windows.Pool{{Name: "full", TokensPerBlock: 4}},
		Counts: []windows.PageCounts{{Primary: 8}}, TokensPerBlock: 4}, nil)
	s := c.sequences.Open(1)
	s.Begin(sequence.Origin{Prompt: 18, Arrived: 7}, make([]messages.Token, 18), 0)
	s.Plan(3, 12)
	s.Extend(make([]messages.Token, 6))
	r := release{shared: &shared{config: &Config{TokensPerBlock: 4}}}
	got := *r.noteFacts(s, 23, 0)
	got.Signatures = nil
	assert.Equal(t, protocol.RequestFacts{Arrived: 7, Blocks: 5, Prompt: 4, Found: 3, Tokens: 18,
		Answer: 6}, got)
	assert.Equal(t, 90, r.noteFacts(s, 23, 90).Answer, "what the host says")
	assert.Equal(t, 2, r.noteFacts(s, 8, 0).Prompt, "the rest of the prompt was not computed")
}

// served is the transaction that serves requests of a type.
func served[R any, T transaction](c *Coordinator) T {
	return c.kernel.serving[reflect.TypeFor[R]()].(T)
}
