package hazards

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
)

// watcher keeps page tables as a host does that never asks for them again: it
// rewrites them when it is told of moved pages.
type watcher struct {
	rebalances, moved int
	pools             []messages.PoolInfo
	tables            map[messages.SequenceID]messages.Tables
}

// hear follows moved pages. All of a pool move at once: an old number may be
// another's new one.
func (h *watcher) hear(r messages.Rebalanced) {
	h.rebalances++
	h.pools = r.Pools
	for p, moves := range r.Moved {
		h.moved += len(moves)
		to := map[messages.PageID]messages.PageID{}
		for _, m := range moves {
			to[m.Old] = m.New
		}
		for _, tables := range h.tables {
			for _, table := range tables[p] {
				for b, page := range table {
					if moved, ok := to[page]; ok {
						table[b] = moved
					}
				}
			}
		}
	}
}

// learn takes the tables of all running sequences down.
func (h *watcher) learn(t *testing.T, g *guest) {
	h.tables = map[messages.SequenceID]messages.Tables{}
	for _, q := range g.running {
		tables, err := g.TablesOf(context.Background(), q.id)
		require.NoError(t, err)
		h.tables[q.id] = tables
	}
}

// check compares the tables of sequences that nothing else has touched since.
func (h *watcher) check(t *testing.T, g *guest) {
	for _, q := range g.running {
		if kept, ok := h.tables[q.id]; ok && q != g.touched {
			tables, err := g.TablesOf(context.Background(), q.id)
			require.NoError(t, err)
			require.Equal(t, kept, tables, "sequence %v", q.id)
		}
	}
}

// Memory moves between the pools while hosts run, kernels and transfers under
// way: no hazard, every byte right, every held page announced.
func TestAutoRebalance(t *testing.T) {
	moved, rebalances := 0, 0
	for seed := range uint64(8) {
		h := &watcher{}
		s := crowded(seed, actors.WithAutoRebalance(7, h.hear))
		s.moves = true
		w := newWorld(t, s)
		g := newGuest(w, seed)
		for range lifetime {
			h.learn(t, g)
			g.runSteps(1)
			h.check(t, g)
		}
		require.Empty(t, w.wrong(g.running...), "seed %d", seed)
		g.leaveAll()
		require.Empty(t, w.wrong(), "seed %d", seed)
		require.NoError(t, w.Check(context.Background()))
		if h.pools != nil {
			assert.Equal(t, h.pools, w.Pools())
		}
		moved, rebalances = moved+h.moved, rebalances+h.rebalances
		w.close()
	}
	assert.NotZero(t, rebalances)
	assert.NotZero(t, moved, "held pages that moved")
	t.Logf("%d rebalances moved %d held pages", rebalances, moved)
}

func TestAutoRebalanceNeedsAListener(t *testing.T) {
	system := newSystem()
	defer system.Shutdown()
	s := small(nil)
	_, err := actors.Spawn(system.Root, s.config(nil), actors.WithAutoRebalance(1, nil))
	assert.ErrorContains(t, err, "no function to tell")
}
