package pool

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/forecast"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// These tests hold what the policy is told of a request: its runs, the watched block, and which watched blocks are superseded.

// TestPolicyIsToldOfRuns: of prompts that repeat the policy learns what one does that is told of their two runs, the last block
// with its own and the others in front, and that gets the entry of each watched block back.
func TestPolicyIsToldOfRuns(t *testing.T) {
	const docs, length = 20, 6
	p := NewForecast("told", docs*length, Forecast{Seed: 1, Span: 1})
	p.SetBlockTokens(1)
	c := &atomicCache{pool: p, answers: true, clock: realTime}
	policy := forecast.New(docs*length, 1, 1)
	r, uses, now := rand.New(rand.NewPCG(5, 6)), [docs]uint8{}, time.Duration(0)
	for range 3000 {
		// The first documents return sooner than others, and are used more often.
		d := min(r.IntN(docs), r.IntN(docs), r.IntN(docs))
		now += time.Duration(1+r.IntN(4000)) * time.Millisecond
		c.request(&traceRequest{Timestamp: float64(now.Milliseconds()), IDs: document(uint64(d), length), Answer: 100, Block: 1})
		require.Empty(t, c.work.Victims)

		told := forecast.Request{Arrived: now, Released: now, Blocks: length, Prompt: length, Tokens: length, Found: c.facts.Found, Answer: 100}
		for _, id := range document(uint64(d), length) {
			told.Signatures = append(told.Signatures, signature(id, 0))
		}
		if uses[d] > 0 {
			told.Cached = length
		}
		uses[d] = min(uses[d]+1, uint8(mostUses))
		policy.Advance(now)
		policy.Begin(&told)
		front := forecast.Run{Uses: uses[d]}
		last := forecast.Run{From: length - 1, Uses: 1, Front: uses[d], Last: true}
		n := c.numberOf(document(uint64(d), 1)[0])
		if block, ok := policy.Draw(&told, 0); ok {
			assert.Equal(t, policy.Watch(&told, front, block), p.cache.pieces.details[n].watched)
		}
		policy.End(&told, front, last)
		require.Equal(t, policy.Piece(last), p.cache.pieces.uses[n].features())
	}
	require.Equal(t, policy.String(), p.cache.pieces.policy.String())
}

// TestRestOfAPieceIsSuperseded: the watched block of a piece stays with the rest when the piece is split, and is superseded with it.
func TestRestOfAPieceIsSuperseded(t *testing.T) {
	tested := 0
	for seed := range uint64(20) {
		p := NewForecast("split", 64, Forecast{Seed: seed, Span: 1})
		c := &atomicCache{pool: p, clock: realTime}
		s, ids := p.cache.pieces, document(1, 20)
		c.request(&traceRequest{IDs: ids})
		entry := s.details[c.numberOf(ids[0])].watched
		require.NotZero(t, entry)
		require.Contains(t, s.policy.String(), " 0 superseded")
		// Half of it, then others.
		c.request(&traceRequest{Timestamp: 1000, IDs: append(ids[:10:10], document(2, 5)...)})
		require.NoError(t, p.Check())
		require.True(t, c.pieceOf(ids[19]).marks.has(superseded))
		require.NotSame(t, c.pieceOf(ids[0]), c.pieceOf(ids[19]))
		require.Equal(t, entry, s.details[c.numberOf(ids[19])].watched)
		require.NotEqual(t, entry, s.details[c.numberOf(ids[0])].watched)
		// If the watched block was used, the policy has learned a gap and watches it no more.
		if strings.Contains(s.policy.String(), "(1)") {
			assert.Contains(t, s.policy.String(), " 0 superseded")
		} else {
			assert.Contains(t, s.policy.String(), " 1 superseded")
			tested++
		}
	}
	assert.InDelta(t, 10, tested, 9)
}

// TestWatchedBlockInAGap: a block that the pool does not cache is watched for the run in front of it, or for the first one.
func TestWatchedBlockInAGap(t *testing.T) {
	p := NewForecast("gap", 16, Forecast{Seed: 1, Span: 1})
	do := working(t, p, 0)
	pages := do(protocol.PoolOp{Kind: protocol.Take, N: 6}).Ops[0].Pages
	path := []messages.PageID{messages.NoPage, pages[0], pages[1], messages.NoPage, pages[2], messages.NoPage, messages.NoPage, pages[3], pages[4], pages[5]}
	store := protocol.PoolOp{Kind: protocol.AttachPages, Pages: path, Priority: messages.DefaultPriority}
	for b := range path {
		store.Blocks = append(store.Blocks, protocol.BlockID(b))
		if path[b] == messages.NoPage {
			store.Blocks[b] = protocol.NoBlock
		}
	}
	do(store)
	facts := protocol.RequestFacts{Blocks: len(path), Prompt: len(path)}
	for b := range path {
		facts.Signatures = append(facts.Signatures, signature(uint64(b), 0))
	}
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: path, Use: 2, Request: &facts})
	for block, from := range []int32{1, 1, 1, 1, 4, 4, 4, 7, 7, 7} {
		assert.Equal(t, forecast.Run{From: from, Uses: 1}, p.cache.pieces.runAt(path, block), "block %d", block)
	}
}
