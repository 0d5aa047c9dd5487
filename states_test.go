package kvactor_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
)

// A fork of a model with recurrent layers has a page of its own for the state, and the
// tickets of its copy; so has the sequence that was forked, which would write to what is
// being read.
func TestForksOfStates(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
			States: []kvactor.State{{Layers: []int{1}, Bytes: 256}},
		},
		Cache: cache, Device: device,
	})
	require.NoError(t, err)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	forks, err := s.Fork(ctx, 2)
	require.NoError(t, err)
	all := append(forks, s)
	states := map[kvactor.PageID]bool{}
	for _, q := range all {
		requireTables(t, e, q)
		assert.NotEmpty(t, q.Ready())
		for p, pool := range e.Pools() {
			if pool.Kind == kvactor.KindState {
				states[q.Tables()[p][0][0]] = true
			}
		}
	}
	assert.Len(t, states, 3, "each has a page for the state")
	var steps []kvactor.Step
	for i, q := range all {
		steps = append(steps, kvactor.Step{Sequence: q, Tokens: []kvactor.Token{kvactor.Token(i)}})
	}
	require.NoError(t, e.Append(ctx, steps))
	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{{Sequence: s}})
	for p, pool := range e.Pools() {
		assert.Equal(t, pool.Kind == kvactor.KindAttention, len(in.Pools[p].Slots) == 1, pool.Name)
	}
	for _, q := range all {
		requireTables(t, e, q)
		require.NoError(t, q.Release(ctx, kvactor.Ticket{}))
	}
}

// A fork has no pages of drafts: those of the sequence that was forked are not in its tables.
func TestForkWithDraftStates(t *testing.T) {
	e := draftEngine(t, 12)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	require.NoError(t,
		e.Append(ctx, []kvactor.Step{{Sequence: s, Tokens: []kvactor.Token{6, 7, 8}, DraftStates: 2}}))
	forks, err := s.Fork(ctx, 1)
	require.NoError(t, err)
	requireTables(t, e, s)
	requireTables(t, e, forks[0])
	require.Len(t, forks[0].Tables()[1][0], 1)
	require.NoError(t, forks[0].Release(ctx, kvactor.Ticket{}))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// The kernel of one token more than drafts writes its last state over the one that it began with.
func TestStateThatDraftsOverwrite(t *testing.T) {
	e := draftEngine(t, 12)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	step := kvactor.Step{Sequence: s, Tokens: []kvactor.Token{6, 7, 8}, DraftStates: 1}
	require.ErrorIs(t, e.Append(ctx, []kvactor.Step{step}), kvactor.ErrBadRequest,
		"the state after 7 tokens has no page")
	step.DraftStates = 2
	require.NoError(t, e.Append(ctx, []kvactor.Step{step}))
	require.NoError(t, s.Commit(ctx, 6, kvactor.Ticket{}))
	require.ErrorIs(t, s.Rewind(ctx, 3), kvactor.ErrNotSupported)
	require.NoError(t, s.Rewind(ctx, 2))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// draftEngine has a layer of attention and one with a state.
func draftEngine(t *testing.T, states int) *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1, 0}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
			States: []kvactor.State{{Layers: []int{1}, Bytes: 256}},
		},
		Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 16}, {Primary: states}},
	})
	require.NoError(t, err)
	return e
}

// A step takes a page for the state after each draft. Commits and rewinds choose among them, and
// the next step begins with the page of the last token that is left and gives the others back.
func TestDraftStates(t *testing.T) {
	e := draftEngine(t, 7)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	state := func() []kvactor.PageID { return slices.Clone(s.Tables()[1][0]) }
	appends := func(drafts int, tokens ...kvactor.Token) error {
		steps := []kvactor.Step{{Sequence: s, Tokens: tokens, DraftStates: drafts}}
		err := e.Append(ctx, steps)
		requireTables(t, e, s)
		return err
	}
	working := state()
	require.NoError(t, appends(4, 6, 7, 8, 9))
	entries := state()
	require.Len(t, entries, 5)
	require.Equal(t, working[0], entries[0])

	require.NoError(t, s.Commit(ctx, 9, kvactor.Ticket{}))
	require.NoError(t, s.Rewind(ctx, 1))
	require.NoError(t, s.Rewind(ctx, 1), "to 7 tokens, whose state is in the second page of drafts")
	require.NoError(t, appends(4, 10, 11))
	assert.Equal(t, []kvactor.PageID{entries[2], entries[1], entries[0], entries[3], entries[4]},
		state())
	require.ErrorIs(t, s.Rewind(ctx, 3), kvactor.ErrNotSupported,
		"the pages are those of the last step")
	require.NoError(t, s.Rewind(ctx, 2))

	require.ErrorIs(t, appends(7, 10, 11), kvactor.ErrOutOfPages, "six and the working page are all")
	assert.Len(t, state(), 5)
	require.NoError(t, appends(6, 10, 11))
	assert.Len(t, state(), 7)
	require.NoError(t, s.Commit(ctx, 8, kvactor.Ticket{}))
	forks, err := s.Fork(ctx, 1)
	require.ErrorIs(t, err, kvactor.ErrOutOfPages)
	assert.Empty(t, forks)
	first := state()[1]
	require.NoError(t, appends(0, 12))
	assert.Equal(t, []kvactor.PageID{first}, state())
	require.ErrorIs(t,
		e.Append(ctx, []kvactor.Step{{Sequence: s, Tokens: []kvactor.Token{1}, DraftStates: -1}}),
		kvactor.ErrBadRequest)
	require.NoError(t, s.Rewind(ctx, 2))

	// The page of the state after what is released becomes its checkpoint, without a copy.
	require.NoError(t, appends(2, 13, 14))
	require.NoError(t, s.Commit(ctx, 10, kvactor.Ticket{}))
	last := state()[2]
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	contents, err := e.Actors().Contents(ctx)
	require.NoError(t, err)
	found := false
	for _, c := range contents {
		page, _, ok := c.Pages[1].Page()
		found = found || ok && page == last && len(c.Tokens) == 2
	}
	assert.True(t, found)
}

// requireTables holds the tables of a sequence to those of the engine.
func requireTables(t *testing.T, e *kvactor.Engine, s *kvactor.Sequence) {
	t.Helper()
	tables, err := e.Actors().TablesOf(ctx, s.ID())
	require.NoError(t, err)
	require.Equal(t, tables, s.Tables())
}

// With no state page left an admission keeps its match, is refused for that pool, and waits for
// it: as a prompt without reuse it would need more pages of keys and values than there are.
func TestAnAdmissionWaitsForAPageOfStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
		require.NoError(t, err)
		cache := kvactor.DefaultCache()
		cache.TokensPerBlock = 4
		e, err := kvactor.Open(kvactor.Config{
			Model: kvactor.Model{
				Layers: 2, KVHeads: []int{1, 0}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
				States: []kvactor.State{{Layers: []int{1}, Bytes: 256}},
			},
			Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 8, Secondary: 2},
				{Primary: 2, Secondary: 2}},
		}, actors.WithWaitingRoom(1))
		require.NoError(t, err)
		defer shut(t, e)
		prompt := slices.Repeat([]kvactor.Token{7}, 21)
		s, err := e.Admit(t.Context(), kvactor.AdmitRequest{Tokens: prompt})
		require.NoError(t, err)
		for _, n := range append(s.Admitted().Checkpoints, 21) {
			require.NoError(t, s.Commit(t.Context(), n, kvactor.Ticket{}))
		}
		// takes the page of the checkpoint, which goes to host memory
		forks, err := s.Fork(t.Context(), 1)
		require.NoError(t, err)
		found, err := e.Lookup(t.Context(), kvactor.Prefix{Tokens: append(prompt[:21:21], 1)})
		require.NoError(t, err)
		require.Equal(t, 20, found.MatchedTokens)

		served := make(chan *kvactor.Sequence, 1)
		go func() {
			limited, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			w, err := e.Admit(limited, kvactor.AdmitRequest{Tokens: append(prompt[:21:21], 1)})
			assert.NoError(t, err)
			served <- w
		}()
		synctest.Wait()
		require.NoError(t, e.Release(t.Context(), []kvactor.Step{{Sequence: forks[0], Discard: true}}))
		w := <-served
		require.NotNil(t, w)
		assert.Equal(t, 20, w.Reused())
		require.NoError(t, w.Release(t.Context(), kvactor.Ticket{}))
		require.NoError(t, s.Release(t.Context(), kvactor.Ticket{}))
	})
}
