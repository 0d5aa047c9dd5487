package actors_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The engine says that its requests happen one after the other, each between its
// call and its answer. The model of it here is the whiteboard's: which blocks are
// stored, and which pages sequences hold. Every prompt is one block and a token,
// so it holds two pages; the first is the stored one if the block is stored by
// then. There are pages for everything, so nothing is evicted.

const (
	linearBlocks    = 3 // prompts there are
	linearClients   = 4
	linearSequences = 3 // of each client
	linearPages     = 2*linearClients + linearBlocks
)

// pageCall is a call; pageAnswer what it said.
type pageCall struct {
	op     byte // a admit, c commit, r release, l lookup, s stats
	block  int
	handle int // of the sequence, for a, c and r
}

type pageAnswer struct{ reused, used, cached int }

// ledger is the state of the model.
type ledger struct {
	stored   [linearBlocks]bool
	holdings [linearClients * linearSequences]holding // by handle
}

// holding is what a running sequence holds.
type holding struct {
	running bool
	block   int
	shares  bool // its first page is the stored one
}

// counts are the pages that sequences hold, and the others that are stored.
func (l *ledger) counts() (used, cached int) {
	var held [linearBlocks]bool
	for _, s := range l.holdings {
		switch {
		case !s.running:
		case s.shares:
			used++
			held[s.block] = true
		default:
			used += 2
		}
	}
	for b := range held {
		if held[b] {
			used++
		} else if l.stored[b] {
			cached++
		}
	}
	return used, cached
}

// step is one call; false if the answer is not that of this state.
func (l ledger) step(in pageCall, out pageAnswer) (ledger, bool) {
	reused := 0
	if l.stored[in.block] {
		reused = tpb
	}
	s := &l.holdings[in.handle]
	switch in.op {
	case 'l':
		return l, out.reused == reused
	case 's':
		used, cached := l.counts()
		return l, out.used == used && out.cached == cached
	case 'a':
		*s = holding{running: true, block: in.block, shares: reused > 0}
		return l, out.reused == reused
	case 'c':
		s.shares = s.shares || !l.stored[in.block]
		l.stored[in.block] = true
	case 'r':
		*s = holding{}
	}
	return l, true
}

// operation is a call, its answer and when they were.
type operation struct {
	in          pageCall
	out         pageAnswer
	call, reply time.Duration
}

// linearizable tells whether there is an order of the operations, each between its
// call and its answer, in which the model gives the same answers.
func linearizable(ops []operation) bool {
	model := porcupine.Model{
		Init: func() any { return ledger{} },
		Step: func(state, in, out any) (bool, any) {
			next, ok := state.(ledger).step(in.(pageCall), out.(pageAnswer))
			return ok, next
		},
	}
	var history []porcupine.Operation
	for _, o := range ops {
		history = append(history, porcupine.Operation{Input: o.in, Output: o.out, Call: int64(o.call),
			Return: int64(o.reply)})
	}
	return porcupine.CheckOperations(model, history)
}

// history records calls.
type history struct {
	mu    sync.Mutex
	start time.Time
	ops   []operation
}

func (h *history) call(in pageCall, do func() pageAnswer) {
	call := time.Since(h.start)
	out := do()
	reply := time.Since(h.start)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, operation{in, out, call, reply})
}

// The search finds an order where there is one, and none where there is none.
func TestTheSearchForAnOrder(t *testing.T) {
	admit := operation{in: pageCall{op: 'a'}, call: 0, reply: 1}
	commit := operation{in: pageCall{op: 'c'}, call: 2, reply: 10}
	during := operation{in: pageCall{op: 'l'}, out: pageAnswer{reused: tpb}, call: 3, reply: 4}
	before := operation{in: pageCall{op: 'l'}, call: 5, reply: 6}
	after := operation{in: pageCall{op: 'l'}, call: 11, reply: 12}
	assert.True(t, linearizable([]operation{admit, commit, during}))
	assert.True(t, linearizable([]operation{admit, commit, before}))
	assert.False(t, linearizable([]operation{admit, commit, during, before}),
		"it was there and is gone")
	assert.False(t, linearizable([]operation{admit, commit, after}), "it is there and not found")
}

func TestShortHistoriesAreLinearizable(t *testing.T) {
	for seed := range 60 {
		r := newRig(t, setup{
			pages:  []windows.PageCounts{{Primary: linearPages}},
			change: func(c *windows.Config) { c.EnablePartialReuse = false },
		})
		h := &history{start: time.Now()}
		var clients sync.WaitGroup
		for client := range linearClients {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(uint64(seed), uint64(client)))
				for n := range linearSequences {
					r.useSequence(t, h, pageCall{block: random.IntN(linearBlocks),
						handle: linearSequences*client + n})
				}
			})
		}
		clients.Wait()
		require.True(t, linearizable(h.ops), "seed %d: %+v", seed, h.ops)
		require.NoError(t, r.Check(context.Background()))
		r.close()
	}
}

// useSequence looks a prompt up, admits, commits, counts and releases it.
func (r *rig) useSequence(t *testing.T, h *history, c pageCall) {
	ctx := context.Background()
	prompt := run(1000*c.block, tpb+1)
	as := func(op byte) pageCall { c.op = op; return c }
	h.call(as('l'), func() pageAnswer {
		found, err := r.Lookup(ctx, messages.Prefix{Tokens: prompt})
		assert.NoError(t, err)
		return pageAnswer{reused: found.MatchedTokens}
	})
	var id messages.SequenceID
	h.call(as('a'), func() pageAnswer {
		a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		assert.NoError(t, err)
		id = a.Sequence
		return pageAnswer{reused: a.ReusedTokens}
	})
	h.call(as('c'), func() pageAnswer {
		results, err := r.Commit(ctx, []messages.CommitStep{{Sequence: id, Computed: tpb + 1}})
		assert.NoError(t, errors.Join(err, results[0].Err))
		return pageAnswer{}
	})
	h.call(as('s'), func() pageAnswer {
		stats, err := r.Stats(ctx)
		assert.NoError(t, err)
		p := stats.Pools[0].Primary
		return pageAnswer{used: p.Used, cached: p.Cached}
	})
	h.call(as('r'), func() pageAnswer {
		results, err := r.Release(ctx, []messages.ReleaseStep{{Sequence: id}})
		assert.NoError(t, errors.Join(err, results[0].Err))
		return pageAnswer{}
	})
}
