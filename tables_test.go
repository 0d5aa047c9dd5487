package kvactor_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

const tokensPerBlock = 4

// open starts an engine of two pools, one with a window, of the given pages.
func open(t require.TestingT, pages int, list ...kvactor.Option) *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	return openOn(t, device, pages, list...)
}

// openOn is open on a device.
func openOn(
	t require.TestingT, device gpu.Device, pages int, list ...kvactor.Option,
) *kvactor.Engine {
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = tokensPerBlock, []int{6, 256}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 256},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: pages, Secondary: 4},
			{Primary: pages, Secondary: 4}}, Device: device,
	}, list...)
	require.NoError(t, err)
	return e
}

// tableModel compares the tables that sequences keep with those of the engine.
type tableModel struct {
	engine  *kvactor.Engine
	running []*kvactor.Sequence
}

func (m *tableModel) pick(t *rapid.T) *kvactor.Sequence {
	if len(m.running) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(m.running).Draw(t, "sequence")
}

// fails passes over refusals for want of pages and others that a host may get.
func (m *tableModel) fails(t *rapid.T, err error) bool {
	var refusal *kvactor.Refusal
	if err != nil {
		require.ErrorAs(t, err, &refusal)
		require.NotErrorIs(t, err, kvactor.ErrInternal)
	}
	return err != nil
}

func (m *tableModel) admit(t *rapid.T) {
	r := kvactor.AdmitRequest{
		Tokens: rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 1),
			func(i int) kvactor.Token { return kvactor.Token(i) }), 1, 30).Draw(t, "prompt"),
		BeamWidth:   rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "beams"),
		ChunkTokens: rapid.SampledFrom([]int{0, 8}).Draw(t, "chunk"),
	}
	s, err := m.engine.Admit(ctx, r)
	if !m.fails(t, err) {
		m.running = append(m.running, s)
	}
}

func (m *tableModel) commit(t *rapid.T) {
	s := m.pick(t)
	to := s.Len()
	if s.Computed() < s.Prompt() {
		to = min(s.Prompt(), (s.Computed()+8)/tokensPerBlock*tokensPerBlock)
	}
	m.fails(t, s.Commit(ctx, to, kvactor.Ticket{}))
}

func (m *tableModel) append(t *rapid.T) {
	var steps []kvactor.Step
	for _, s := range m.running {
		if s.Computed() < s.Prompt() || rapid.Bool().Draw(t, "rests") {
			continue
		}
		st := kvactor.Step{Sequence: s}
		if n := len(s.Tables()[0]); n > 1 {
			for range n {
				st.Beams = append(st.Beams, kvactor.BeamStep{Parent: rapid.IntRange(0, n-1).Draw(t, "parent"),
					Token: 1})
			}
		} else {
			st.Tokens = make([]kvactor.Token, rapid.IntRange(1, 5).Draw(t, "tokens"))
		}
		if rapid.Bool().Draw(t, "commits") {
			st.Computed = s.Len()
		}
		steps = append(steps, st)
	}
	_ = m.engine.Append(ctx, steps)
	for i := range steps {
		m.fails(t, steps[i].Err)
	}
}

func (m *tableModel) rewind(t *rapid.T) {
	s := m.pick(t)
	if s.Len() > s.Prompt() {
		m.fails(t, s.Rewind(ctx, rapid.IntRange(1, s.Len()-s.Prompt()).Draw(t, "tokens")))
	}
}

func (m *tableModel) fork(t *rapid.T) {
	steps := []kvactor.Step{{Sequence: m.pick(t), Forks: rapid.IntRange(1, 2).Draw(t, "forks")}}
	if s := m.pick(t); s != steps[0].Sequence {
		steps = append(steps, kvactor.Step{Sequence: s, Forks: 1})
	}
	_ = m.engine.Fork(ctx, steps)
	for i := range steps {
		m.fails(t, steps[i].Err)
	}
	for _, st := range steps {
		m.running = append(m.running, st.Forked...)
	}
}

func (m *tableModel) release(t *rapid.T) {
	s := m.pick(t)
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	m.running = slices.DeleteFunc(m.running, func(r *kvactor.Sequence) bool { return r == s })
}

func (m *tableModel) rebalance(t *rapid.T) {
	_, err := m.engine.Rebalance(ctx, nil)
	m.fails(t, err)
}

func (m *tableModel) check(t *rapid.T) {
	require.NoError(t, m.engine.Check(ctx))
	for _, s := range m.running {
		tables, err := m.engine.Actors().TablesOf(ctx, s.ID())
		require.NoError(t, err)
		require.Equal(t, tables, s.Tables(), "sequence %v", s.ID())
	}
}

// Memory moves by itself from the pool with a window to the other one, whose sequences
// are long; the tables follow, and the host is told.
func TestTablesFollowTheAutomaticRebalance(t *testing.T) {
	moved := 0
	e := open(t, 12, actors.WithAutoRebalance(2, func(r kvactor.Rebalanced) {
		for _, moves := range r.Moved {
			moved += len(moves)
		}
	}))
	defer shut(t, e)
	m := &tableModel{engine: e}
	for i := range 60 {
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{kvactor.Token(i), 2, 3}})
		if err != nil {
			require.ErrorIs(t, err, kvactor.ErrOutOfPages)
		} else {
			require.NoError(t, s.Commit(ctx, 3, kvactor.Ticket{}))
			m.running = append(m.running, s)
		}
		var steps []kvactor.Step
		for _, s := range m.running {
			steps = append(steps, kvactor.Step{Sequence: s, Tokens: []kvactor.Token{1}, Computed: s.Len()})
		}
		if err := e.Append(ctx, steps); err != nil {
			require.ErrorIs(t, err, kvactor.ErrOutOfPages)
			require.NoError(t, m.running[0].Release(ctx, kvactor.Ticket{}))
			m.running = m.running[1:]
		}
		for _, s := range m.running {
			tables, err := e.Actors().TablesOf(ctx, s.ID())
			require.NoError(t, err)
			require.Equal(t, tables, s.Tables())
		}
	}
	assert.Positive(t, moved, "no page has moved: the test shows nothing")
}

// Memory that moves by itself leaves the pages of other hosts alone: they may have launched
// kernels that the engine does not know of.
func TestTheAutomaticRebalanceMovesOnlyPagesOfItsAppend(t *testing.T) {
	var moved []int
	e := open(t, 24, actors.WithAutoRebalance(1, func(r kvactor.Rebalanced) {
		for _, moves := range r.Moved {
			moved = append(moved, len(moves))
		}
	}))
	defer shut(t, e)
	// Sequences of two hosts hold pages at the ends of both pools.
	var hosts [2]*kvactor.Sequence
	for i := range hosts {
		prompt := make([]kvactor.Token, 20)
		prompt[0] = kvactor.Token(i)
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
		require.NoError(t, err)
		hosts[i] = s
		require.NoError(t, s.Commit(ctx, len(prompt), kvactor.Ticket{}))
	}
	other := hosts[1].Tables()
	before := [][]kvactor.PageID{slices.Clone(other[0][0]), slices.Clone(other[1][0])}
	for range 100 {
		err := e.Append(ctx,
			[]kvactor.Step{{Sequence: hosts[0], Tokens: []kvactor.Token{1}, Computed: hosts[0].Len()}})
		if err != nil {
			require.ErrorIs(t, err, kvactor.ErrOutOfPages)
		}
		tables, err := e.Actors().TablesOf(ctx, hosts[0].ID())
		require.NoError(t, err)
		require.Equal(t, tables, hosts[0].Tables())
	}
	require.NotEmpty(t, moved, "memory has moved")
	after, err := e.Actors().TablesOf(ctx, hosts[1].ID())
	require.NoError(t, err)
	for p := range before {
		assert.Equal(t, before[p], after[p][0], "pool %d", p)
	}
}

// A request that lacks pages which other pools have is not refused for ever where memory moves by
// demand: the next move serves it.
func TestTheAutomaticRebalanceServesWhatItRefused(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = tokensPerBlock, []int{6, 256}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 256},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 40}, {Primary: 5}}, Device: device,
	}, actors.WithAutoRebalance(1, nil))
	require.NoError(t, err)
	defer shut(t, e)
	prompt := make([]kvactor.Token, 10*tokensPerBlock)
	_, err = e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
	var refusal *kvactor.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, []any{10, 5, false}, []any{refusal.Need, refusal.Total, refusal.Never})
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
	require.NoError(t, err)
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// A commit that accepts what an earlier kernel has computed leaves the tickets of the pages
// that the next kernel writes.
func TestTicketsStayUntilTheirTokensAreCommitted(t *testing.T) {
	e := open(t, 12)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	_, err = s.Fork(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, s.Append(ctx, 6, 7)) // copies the page that the fork holds, too
	require.NotEmpty(t, s.Ready())
	require.NoError(t, s.Commit(ctx, 6, kvactor.Ticket{}))
	assert.NotEmpty(t, s.Ready())
	require.NoError(t, s.Commit(ctx, 7, kvactor.Ticket{}))
	assert.Empty(t, s.Ready())
}

// A device that refuses to copy a page leaves every sequence with its pages.
func TestTablesFollowARebalanceThatFails(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	e := openOn(t, device, 16)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 30)})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 30, kvactor.Ticket{}))
	first, err := e.Admit(ctx,
		kvactor.AdmitRequest{Tokens: []kvactor.Token{5, 6, 7, 8, 9, 10, 11, 12, 13}})
	require.NoError(t, err)
	require.NoError(t, first.Release(ctx, kvactor.Ticket{}))
	device.Fail(gpu.Local, 1)
	_, err = e.Resize(ctx, []int{5, 10})
	require.ErrorIs(t, err, kvactor.ErrInternal)
	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	for _, p := range stats.Pools {
		assert.Equal(t, 16, p.Primary.Total, "the pools have their old sizes")
	}
	tables, err := e.Actors().TablesOf(ctx, s.ID())
	require.NoError(t, err, "the sequence is not lost")
	assert.Equal(t, tables, s.Tables())
	require.NoError(t, s.Append(ctx, 1))
	require.NoError(t, e.Check(ctx))
}

// The tables of sequences follow every call as the engine's do.
func TestTablesFollowTheEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var options []kvactor.Option
		if rapid.Bool().Draw(t, "moves by itself") {
			options = append(options, actors.WithAutoRebalance(2, nil))
		}
		m := &tableModel{engine: open(t, rapid.IntRange(8, 30).Draw(t, "pages"), options...)}
		defer func() {
			_, err := m.engine.Close(ctx)
			require.NoError(t, err)
		}()
		t.Repeat(map[string]func(*rapid.T){
			"admit": m.admit, "commit": m.commit, "append": m.append, "append more": m.append,
			"rewind": m.rewind,
			"fork":   m.fork, "release": m.release, "rebalance": m.rebalance, "": m.check,
		})
	})
}

// A ticket that no stream has issued is refused at once; the sequence goes on.
func TestTicketOfNoStream(t *testing.T) {
	e := open(t, 12)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	stranger := kvactor.Ticket{Stream: 77, Seq: 5}
	err = s.Commit(ctx, 5, stranger)
	require.ErrorIs(t, err, kvactor.ErrBadRequest)
	assert.ErrorContains(t, err, "no stream 77")
	assert.Zero(t, s.Computed())
	require.ErrorIs(t,
		e.Append(ctx, []kvactor.Step{{Sequence: s, Tokens: []kvactor.Token{6}, After: stranger}}),
		kvactor.ErrBadRequest)
	assert.Equal(t, 5, s.Len())
	require.ErrorIs(t, s.Release(ctx, stranger), kvactor.ErrBadRequest)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// An engine that keeps no events has no readers: a router would take its cache for empty.
func TestReadersOfNoEvents(t *testing.T) {
	e := open(t, 12)
	defer shut(t, e)
	_, err := e.OpenReader(ctx)
	require.ErrorIs(t, err, kvactor.ErrNotSupported)
	assert.ErrorContains(t, err, "event_buffer_max_size is 0")
	_, err = e.Events(ctx, 0)
	require.ErrorIs(t, err, kvactor.ErrNotSupported)
	_, err = e.Snapshot(ctx, 0)
	require.ErrorIs(t, err, kvactor.ErrNotSupported)
}
