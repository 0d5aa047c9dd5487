package kvactor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu/sim"
)

func shut(t *testing.T, e *kvactor.Engine) {
	_, err := e.Close(ctx)
	require.NoError(t, err)
}

// Open refuses what is wrong by the name of the field, and leaves nothing behind (see
// goleak in TestMain).
func TestOpenRefuses(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	model := kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
		MaxSeqLen: 64}
	_, err = kvactor.Open(kvactor.Config{Model: model, Cache: kvactor.DefaultCache()})
	require.ErrorIs(t, err, kvactor.ErrConfigInvalid)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 5
	_, err = kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device})
	require.ErrorIs(t, err, kvactor.ErrConfigInvalid)
	assert.ErrorContains(t, err, "tokens_per_block")
}

// In a batch every step has its own error, and the call has all of them.
func TestErrorsOfABatch(t *testing.T) {
	e := open(t, 8)
	defer shut(t, e)
	a, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 8)})
	require.NoError(t, err)
	b, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{5, 6}})
	require.NoError(t, err)
	require.NoError(t, b.Commit(ctx, 2, kvactor.Ticket{}))
	steps := []kvactor.Step{{Sequence: a, Tokens: []kvactor.Token{1}},
		{Sequence: b, Tokens: []kvactor.Token{7}}}
	err = e.Append(ctx, steps)
	require.ErrorIs(t, err, kvactor.ErrBadRequest, "the prompt of a is not computed")
	assert.ErrorContains(t, err, a.ID().String())
	assert.ErrorIs(t, steps[0].Err, kvactor.ErrBadRequest)
	assert.NoError(t, steps[1].Err)
	assert.Equal(t, []int{8, 3}, []int{a.Len(), b.Len()})

	over, cancel := context.WithCancel(ctx)
	cancel()
	err = e.Append(over, steps)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, steps[1].Err, context.Canceled, "an error of the call is that of each step")
	require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: a}, {Sequence: b}}))
	assert.ErrorIs(t, a.Release(ctx, kvactor.Ticket{}), kvactor.ErrUnknownSequence)
}

// After Close every call says so.
func TestAClosedEngine(t *testing.T) {
	e := open(t, 8)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1}})
	require.NoError(t, err)
	leaked, err := e.Close(ctx)
	require.NoError(t, err)
	assert.Equal(t, 2, leaked, "one page in each pool")
	assert.ErrorIs(t, s.Append(ctx, 1), kvactor.ErrClosed)
	again, err := e.Close(ctx)
	require.NoError(t, err)
	assert.Equal(t, leaked, again)
}

// The logger hears of an actor that panics; without one nothing is written.
func TestTheLogger(t *testing.T) {
	var text bytes.Buffer
	points := &enginetest.Failpoints{}
	logger := actors.WithLogger(slog.New(slog.NewTextHandler(&text, nil)))
	e := open(t, 8, logger, enginetest.WithFailpoints(points))
	require.NoError(t, points.Arm("tree"))
	_, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1}})
	require.ErrorIs(t, err, kvactor.ErrInternal)
	shut(t, e)
	assert.Contains(t, text.String(), "level=ERROR")
}

// under starts an engine under an actor system.
func under(t *testing.T, system *actor.ActorSystem) *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Device: device, Parent: system.Root,
	})
	require.NoError(t, err)
	return e
}

// A host with an actor system of its own keeps it.
func TestUnderASystemOfTheHosts(t *testing.T) {
	system := actors.NewSystem(nil)
	defer system.Shutdown()
	e := under(t, system)
	shut(t, e)
	e = under(t, system)
	assert.NotNil(t, e.Actors().PID())
	shut(t, e)
}

// Requests about what is stored, and their answers.
func TestStored(t *testing.T) {
	e := open(t, 8)
	defer shut(t, e)
	prefix := kvactor.Prefix{Tokens: []kvactor.Token{1, 2, 3, 4, 5}}
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prefix.Tokens})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	found, err := e.Lookup(ctx, prefix)
	require.NoError(t, err)
	assert.Equal(t, 4, found.MatchedTokens)
	pin, err := e.Pin(ctx, prefix)
	require.NoError(t, err)
	assert.Equal(t, 4, pin.Tokens)
	require.NoError(t, e.Unpin(ctx, pin.Pin))
	pages, err := e.Prefetch(ctx, prefix)
	require.NoError(t, err)
	assert.Zero(t, pages)
	blocks, err := e.Invalidate(ctx, kvactor.Selector{Prefix: &prefix})
	require.NoError(t, err)
	assert.Positive(t, blocks)
	require.NoError(t, e.Reset(ctx))
	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats.Requests)
	assert.Len(t, e.DevicePools(), len(e.Pools()))
	assert.Error(t, e.Validate(kvactor.AdmitRequest{}))
}

// The error of a batch names each sequence that was refused, once.
func TestErrorsNameTheSequenceOnce(t *testing.T) {
	e := open(t, 8)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}})
	require.NoError(t, err)
	assert.EqualError(t, s.Rewind(ctx, 2),
		fmt.Sprintf("sequence %v: rewind of 2 tokens: 0 are generated", s.ID()))
	twice := []kvactor.Step{{Sequence: s, Computed: 3}, {Sequence: s, Computed: 3}}
	assert.EqualError(t, e.Commit(ctx, twice), fmt.Sprintf("sequence %v is twice in one request",
		s.ID()))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	assert.EqualError(t, s.Append(ctx, 4), fmt.Sprintf("sequence %v is not running", s.ID()))
}

// Beams have a row each, and a query outside its sequence is a mistake of the host.
func TestInputsOfBeams(t *testing.T) {
	e := open(t, 16)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}, BeamWidth: 2})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 3, kvactor.Ticket{}))
	steps := []kvactor.Step{{Sequence: s, Beams: []kvactor.BeamStep{{Parent: 0, Token: 4},
		{Parent: 0, Token: 5}}}}
	require.NoError(t, e.Append(ctx, steps))
	var in kvactor.Inputs
	for range 2 { // its slices are used again
		in.Fill(e, []kvactor.Query{{Sequence: s, To: 4}})
		assert.Equal(t, []int32{4, 4}, in.SequenceLengths)
		assert.Equal(t, []int32{0, 1, 2}, in.QueryStarts)
		for p := range in.Pools {
			tables := s.Tables()[p]
			assert.Equal(t, []kvactor.PageID{tables[0][0], tables[1][0]}, in.Pools[p].BlockTables)
			assert.Equal(t, []int64{int64(tables[0][0])*4 + 3, int64(tables[1][0])*4 + 3}, in.Pools[p].Slots)
			assert.NotEqual(t, tables[0][0], tables[1][0])
		}
	}
	assert.Panics(t, func() { in.Fill(e, []kvactor.Query{{Sequence: s, To: 5}}) })
	require.NoError(t, e.Refresh(ctx, s))
	assert.ErrorIs(t, e.Refresh(ctx, &kvactor.Sequence{}), kvactor.ErrUnknownSequence)
}
