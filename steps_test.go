package kvactor

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// two opens two engines, to mix up.
func two(t *testing.T) [2]*Engine {
	var both [2]*Engine
	for i := range both {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
		require.NoError(t, err)
		both[i], err = Open(Config{
			Model:  Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: Float16, MaxSeqLen: 64},
			Pages:  []PageCounts{{Primary: 8}},
			Device: device,
		})
		require.NoError(t, err)
	}
	return both
}

// A handle whose sequence the engine does not know any more, because a message to the
// actors has released it, does not stay in the engine's list of running sequences.
func TestReleaseOfAnUnknownSequence(t *testing.T) {
	ctx := context.Background()
	e := two(t)
	s, err := e[0].Admit(ctx, AdmitRequest{Tokens: []Token{1, 2}})
	require.NoError(t, err)
	_, err = e[0].Actors().Release(ctx, []messages.ReleaseStep{{Sequence: s.ID()}})
	require.NoError(t, err)
	require.Len(t, e[0].running, 1)
	require.ErrorIs(t, s.Release(ctx, Ticket{}), ErrUnknownSequence)
	assert.Empty(t, e[0].running)
	for _, engine := range e {
		_, err := engine.Close(ctx)
		require.NoError(t, err)
	}
}

// A step without a sequence, or with one of another engine, is refused by its index, and
// the whole batch has changed nothing.
func TestStepsOfOtherEngines(t *testing.T) {
	ctx := context.Background()
	e := two(t)
	a, err := e[0].Admit(ctx, AdmitRequest{Tokens: []Token{1, 2}})
	require.NoError(t, err)
	b, err := e[1].Admit(ctx, AdmitRequest{Tokens: []Token{1, 2}})
	require.NoError(t, err)
	for _, c := range []struct {
		second *Sequence
		text   string
	}{{nil, "steps[1].Sequence is nil"}, {b, "is of another engine"}} {
		steps := []Step{{Sequence: a, Computed: 2}, {Sequence: c.second, Computed: 2}}
		for _, call := range []func(context.Context, []Step) error{e[0].Append, e[0].Commit, e[0].Rewind,
			e[0].Fork, e[0].Release} {
			err := call(ctx, steps)
			require.ErrorIs(t, err, ErrBadRequest)
			assert.ErrorContains(t, err, c.text)
			assert.Equal(t, err, steps[0].Err)
		}
	}
	assert.Zero(t, a.Computed())
	for _, engine := range e {
		leaked, err := engine.Close(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, leaked)
	}
}

// The zero configuration of the cache is the default one.
func TestTheZeroCache(t *testing.T) {
	for _, e := range two(t) {
		assert.Equal(t, DefaultCache().TokensPerBlock, e.Pools()[0].TokensPerBlock)
		_, err := e.Close(context.Background())
		require.NoError(t, err)
	}
}

// A configuration of some fields has the defaults of the others: reuse is on.
func TestACacheOfSomeFields(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	e, err := Open(Config{
		Model:  Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: Float16, MaxSeqLen: 64},
		Cache:  CacheConfig{TokensPerBlock: 4, EventBufferMaxSize: 8},
		Device: device,
	})
	require.NoError(t, err)
	assert.Equal(t, 4, e.Pools()[0].TokensPerBlock)
	_, err = e.Events(t.Context(), 0)
	require.NoError(t, err)
	for _, reused := range []int{0, 8} {
		s, err := e.Admit(t.Context(), AdmitRequest{Tokens: make([]Token, 9)})
		require.NoError(t, err)
		assert.Equal(t, reused, s.Reused())
		require.NoError(t, s.Commit(t.Context(), 9, Ticket{}))
		require.NoError(t, s.Release(t.Context(), Ticket{}))
	}
	_, err = e.Close(t.Context())
	require.NoError(t, err)
}

// What a host does to the list of pools is its own.
func TestPoolsIsACopy(t *testing.T) {
	e := two(t)
	pools := e[0].Pools()
	pools[0].Layers[0], pools[0].Name = 77, "x"
	assert.Equal(t, e[1].Pools(), e[0].Pools())
	for _, engine := range e {
		_, err := engine.Close(context.Background())
		require.NoError(t, err)
	}
}

// All sequences of a batch are forked by one call, and a step that is refused is passed
// over.
func TestForkOfABatch(t *testing.T) {
	ctx := context.Background()
	both := two(t)
	e := both[0]
	var steps []Step
	for i := range Token(3) {
		s, err := e.Admit(ctx, AdmitRequest{Tokens: []Token{i, 2}})
		require.NoError(t, err)
		if i != 1 {
			require.NoError(t, s.Commit(ctx, 2, Ticket{}))
		}
		steps = append(steps, Step{Sequence: s, Forks: int(i) + 1})
	}
	require.ErrorIs(t, e.Fork(ctx, steps), ErrBadRequest, "the prompt of the second is not computed")
	require.NoError(t, steps[0].Err)
	require.Error(t, steps[1].Err)
	require.NoError(t, steps[2].Err)
	assert.Equal(t, []int{1, 0, 3}, []int{len(steps[0].Forked), len(steps[1].Forked),
		len(steps[2].Forked)})
	assert.Len(t, e.running, 7)
	var all []Step
	slots := map[int32]bool{}
	for _, s := range e.running {
		slots[s.Slot()] = true
		assert.Less(t, s.Slot(), int32(7))
	}
	assert.Len(t, slots, 7, "each has a slot of its own")
	for i, st := range steps {
		for _, f := range st.Forked {
			assert.Equal(t, st.Sequence.Tables(), f.Tables(), "fork of %d", i)
			assert.NotEqual(t, st.Sequence.ID(), f.ID())
			all = append(all, Step{Sequence: f})
		}
		all = append(all, Step{Sequence: st.Sequence})
	}
	require.NoError(t, e.Release(ctx, all))
	assert.Empty(t, e.running)
	last, err := e.Admit(ctx, AdmitRequest{Tokens: []Token{9}})
	require.NoError(t, err)
	assert.Less(t, last.Slot(), int32(7), "slots are used again")
	require.NoError(t, last.Release(ctx, Ticket{}))
	for _, engine := range both {
		leaked, err := engine.Close(ctx)
		require.NoError(t, err)
		assert.Zero(t, leaked)
	}
}

// A step with a field of another call is refused, by the field's name, and nothing has changed.
func TestFieldsOfOtherCalls(t *testing.T) {
	ctx := context.Background()
	both := two(t)
	e := both[0]
	s, err := e.Admit(ctx, AdmitRequest{Tokens: []Token{1, 2, 3}})
	require.NoError(t, err)
	calls := map[string]func(context.Context, []Step) error{
		"Append": e.Append, "Commit": e.Commit, "Rewind": e.Rewind, "Fork": e.Fork, "Release": e.Release,
	}
	steps := map[string]Step{
		"Tokens": {Tokens: []Token{1}}, "Beams": {Beams: []BeamStep{{}}}, "Computed": {Computed: 1},
		"Rewind": {Rewind: 1},
		"Forks":  {Forks: 1}, "Discard": {Discard: true}, "After": {After: Ticket{Stream: 1, Seq: 1}},
		"AnswerTokens": {AnswerTokens: 1},
		"DraftStates":  {DraftStates: 1},
	}
	for field := range reflect.TypeFor[Step]().Fields() {
		if !slices.Contains([]string{"Sequence", "Placed", "Forked", "Err"}, field.Name) {
			require.Contains(t, steps, field.Name, "a field that calls take has a step here")
		}
	}
	foreign := map[string][]string{
		"Append": {"Rewind", "Forks", "Discard", "AnswerTokens"},
		"Commit": {"Tokens", "Beams", "Rewind", "Forks", "Discard", "AnswerTokens", "DraftStates"},
		"Rewind": {"Tokens", "Beams", "Computed", "Forks", "Discard", "After", "AnswerTokens",
			"DraftStates"},
		"Fork": {"Tokens", "Beams", "Computed", "Rewind", "Discard", "After", "AnswerTokens",
			"DraftStates"},
		"Release": {"Tokens", "Beams", "Rewind", "Forks", "DraftStates"},
	}
	for call, names := range foreign {
		for _, name := range names {
			st := steps[name]
			st.Sequence = s
			err := calls[call](ctx, []Step{st})
			require.ErrorIs(t, err, ErrBadRequest, "%s with %s", call, name)
			assert.EqualError(t, err, "steps[0]."+name+" is set, which "+call+" does not take")
		}
	}
	assert.Equal(t, 3, s.Len())
	require.NoError(t, s.Release(ctx, Ticket{}))
	for _, engine := range both {
		_, err := engine.Close(ctx)
		require.NoError(t, err)
	}
}

// The error of a whole batch has a code if all of its items failed for that reason.
func TestErrorsOfABatch(t *testing.T) {
	ctx := context.Background()
	both := two(t)
	e := both[0]
	long := Admission{Request: AdmitRequest{Tokens: make([]Token, 99)}}
	require.ErrorIs(t, e.AdmitBatch(ctx, []Admission{long, long}), ErrTooLong)
	batch := []Admission{{Request: AdmitRequest{Tokens: []Token{1}, BeamWidth: -1}}, long}
	err := e.AdmitBatch(ctx, batch)
	require.ErrorIs(t, batch[0].Err, ErrBadRequest)
	require.ErrorIs(t, batch[1].Err, ErrTooLong)
	require.NotErrorIs(t, err, ErrTooLong)
	require.NotErrorIs(t, err, ErrBadRequest)
	assert.ErrorContains(t, err, batch[0].Err.Error())
	assert.ErrorContains(t, err, batch[1].Err.Error())
	for _, engine := range both {
		_, err := engine.Close(ctx)
		require.NoError(t, err)
	}
}
