package survival_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

const (
	maxInt = math.MaxInt
	minInt = math.MinInt
)

// victim is an engine with running sequences, which hostile calls must leave
// as it is.
type victim struct {
	*rig
	computed messages.SequenceID // a sequence whose prompt of 9 tokens is computed
	prefill  messages.SequenceID // one whose prompt of 12 is not
	chunked  messages.SequenceID // 20 tokens, chunks of 4
	beams    messages.SequenceID // 5 tokens, two beams
	ended    messages.SequenceID
	pools    []messages.PoolInfo
	input    []messages.Token // what each prompt needs of an encoder–decoder engine
}

func newVictim(t *testing.T) *victim { return newVictimOf(t, setup{}) }

func newVictimOf(t *testing.T, s setup) *victim {
	pages := windows.PageCounts{Primary: 32, Secondary: 8}
	s.windows, s.pages = []int{long, 4 * tpb}, []windows.PageCounts{pages, pages}
	v := &victim{rig: newRig(t, s)}
	if s.encodes {
		v.input = run(0, 8)
	}
	take := func(q messages.AdmitRequest) messages.SequenceID {
		q.Encoder = v.input
		return v.admit(q).Sequence
	}
	v.pools = v.Pools()
	v.computed = take(prompt(0, 9))
	v.compute(v.computed, 9)
	v.ended = take(prompt(100, 9))
	v.compute(v.ended, 9)
	v.release(v.ended)
	v.prefill = take(prompt(200, 12))
	q := prompt(300, 20)
	q.ChunkTokens = tpb
	v.chunked = take(q)
	q = prompt(400, 5)
	q.BeamWidth = 2
	v.beams = take(q)
	v.compute(v.beams, 5)
	return v
}

func (v *victim) end() {
	v.release(v.computed, v.prefill, v.chunked, v.beams)
	v.close()
}

// seen is everything that shows a change.
type seen struct {
	Stats    inspect.Stats
	Contents []protocol.Content
	Tables   []messages.Tables
	Pools    []messages.PoolInfo
}

func (v *victim) look() seen {
	v.t.Helper()
	var s seen
	var err error
	s.Stats, err = v.Stats(ctx)
	require.NoError(v.t, err)
	// A refused request is a round, and a step in it counts as refused.
	s.Stats.Rounds, s.Stats.RefusedSteps = 0, inspect.StepRefusals{}
	s.Contents, err = v.Contents(ctx)
	require.NoError(v.t, err)
	for _, id := range []messages.SequenceID{v.computed, v.prefill, v.chunked, v.beams} {
		t, err := v.TablesOf(ctx, id)
		require.NoError(v.t, err)
		s.Tables = append(s.Tables, t)
	}
	s.Pools = v.Pools()
	return s
}

// bad is a call and the code that it must be refused with.
type bad struct {
	name  string
	code  error
	call  func(*victim) error
	alone bool // bad without an encoder only
}

func admitting(name string, code error, q messages.AdmitRequest) bad {
	return bad{name: "admit " + name, code: code, call: func(v *victim) error {
		if v.input != nil {
			q.Encoder = v.input
		}
		_, err := v.Admit(ctx, q)
		return err
	}}
}

func committing(name string, code error, pick func(*victim) messages.SequenceID, n int) bad {
	return bad{name: "commit " + name, code: code, call: func(v *victim) error {
		return one(v.Commit(ctx, []messages.CommitStep{{Sequence: pick(v), Computed: n}}))
	}}
}

func appending(
	name string, code error, pick func(*victim) messages.SequenceID, s messages.AppendStep,
) bad {
	return bad{name: "append " + name, code: code, call: func(v *victim) error {
		s.Sequence = pick(v)
		return one(v.Append(ctx, []messages.AppendStep{s}))
	}}
}

// one is the refusal of the only step.
func one(results []messages.StepResult, err error) error {
	if err != nil {
		return err
	}
	return results[len(results)-1].Err
}

func computed(v *victim) messages.SequenceID { return v.computed }
func prefill(v *victim) messages.SequenceID  { return v.prefill }
func chunked(v *victim) messages.SequenceID  { return v.chunked }
func beamed(v *victim) messages.SequenceID   { return v.beams }

// strangers are handles that name no running sequence.
var strangers = map[string]func(*victim) messages.SequenceID{
	"zero":              func(*victim) messages.SequenceID { return 0 },
	"ended":             func(v *victim) messages.SequenceID { return v.ended },
	"all bits":          func(*victim) messages.SequenceID { return math.MaxUint64 },
	"slot out of reach": func(*victim) messages.SequenceID { return 1<<32 | math.MaxUint32 },
	"next generation":   func(v *victim) messages.SequenceID { return v.computed + 1<<32 },
	"highest int64":     func(*victim) messages.SequenceID { return math.MaxInt64 },
}

func TestHostileCallsAreRefusedAndChangeNothing(t *testing.T) {
	var list []bad
	for _, some := range [][]bad{badPrompts(), badShapes(), badRetention(), badSteps(), badSequences(),
		badPrefixes(), badFractions()} {
		list = append(list, some...)
	}
	require.Greater(t, len(list), 120)
	hostile(t, newVictim(t), list)
	hostile(t, newVictimOf(t, setup{encodes: true}), append(list, badInputs()...))
}

// hostile makes all bad calls that are bad for the victim.
func hostile(t *testing.T, v *victim, list []bad) {
	before := v.look()
	for _, b := range list {
		if v.input != nil && b.alone {
			continue
		}
		err := b.call(v)
		var refusal *messages.Refusal
		if assert.ErrorAs(t, err, &refusal, b.name) {
			assert.ErrorIs(t, err, b.code, b.name)
			assert.NotEmpty(t, refusal.Message, b.name)
			assert.Less(t, len(refusal.Message), 1000, b.name)
		}
		require.Equal(t, before, v.look(), b.name)
	}
	require.NoError(t, v.Check(ctx))
	v.end()
}

// In one request a sequence may be there once; the first step counts.
func TestASequenceTwiceInARequest(t *testing.T) {
	v := newVictim(t)
	results, err := v.Commit(ctx, []messages.CommitStep{{Sequence: v.prefill, Computed: 4},
		{Sequence: v.prefill, Computed: 8}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, messages.ErrBadRequest)
	step := messages.AppendStep{Sequence: v.computed, Tokens: run(0, 1)}
	results, err = v.Append(ctx, []messages.AppendStep{step, step})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, messages.ErrBadRequest)
	results, err = v.Release(ctx, []messages.ReleaseStep{{Sequence: v.prefill}, {Sequence: v.prefill}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.Error(t, results[1].Err)
	v.prefill = v.admit(prompt(200, 4)).Sequence
	v.end()
}

// What is large but right is served.
func TestLargeButRight(t *testing.T) {
	v := newVictim(t)
	name := strings.Repeat("s", 1<<20)
	q := prompt(7000, 9)
	q.Namespace = messages.Namespace{Salt: name, LoRA: name, HasLoRA: true}
	q.Session = name
	q.ChunkTokens = maxInt / tpb * tpb
	q.Retention = &messages.Retention{
		Ranges: []messages.RetentionRange{{Start: maxInt - 1, End: maxInt},
			{End: 5, Duration: math.MaxInt64}},
		Decode: &messages.DecodeRetention{Priority: 100, Duration: math.MaxInt64},
	}
	a := v.admit(q)
	v.compute(a.Sequence, 9)
	v.release(a.Sequence)
	b := v.admit(q)
	assert.Equal(t, 8, b.ReusedTokens)
	for p := range b.Tables {
		assert.Len(t, b.Tables[p][0], 3)
	}
	v.compute(b.Sequence, 9)
	v.release(b.Sequence)
	n, err := v.Invalidate(ctx, messages.Selector{Salt: name})
	require.NoError(t, err)
	assert.Positive(t, n)
	for _, empty := range []func() error{
		func() error { _, err := v.AdmitBatch(ctx, nil); return err },
		func() error { _, err := v.Commit(ctx, nil); return err },
		func() error { _, err := v.Append(ctx, nil); return err },
		func() error { _, err := v.Release(ctx, nil); return err },
	} {
		assert.NoError(t, empty())
	}
	v.end()
}

// A nil request is refused, and the engine goes on. The compiler refuses what is no
// request.
func TestWhatIsNoRequest(t *testing.T) {
	for name, request := range map[string]messages.Request{"no record": (*messages.Admit)(nil),
		"nothing": nil} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before := v.look()
			require.ErrorIs(t, v.Do(ctx, request), messages.ErrBadRequest)
			require.Equal(t, before, v.look())
			v.end()
		})
	}
}

// Pointers of all requests that point at nothing. A host that is an actor gets
// them back as refused, and what is no request at all as well.
func TestARequestThatPointsAtNothing(t *testing.T) {
	requests := []any{
		(*messages.Admit)(nil), (*messages.Commit)(nil), (*messages.Append)(nil),
		(*messages.Release)(nil),
		(*messages.Rewind)(nil), (*messages.Fork)(nil), (*messages.ReadTables)(nil),
		(*messages.Lookup)(nil), (*messages.PinPrefix)(nil),
		(*messages.UnpinPrefix)(nil), (*messages.Prefetch)(nil), (*messages.Invalidate)(nil),
		(*messages.Reset)(nil), (*messages.Rebalance)(nil),
		(*inspect.ReadStats)(nil), (*inspect.ReadOverview)(nil), (*kvevents.ReadEvents)(nil),
		(*kvevents.ReadSnapshot)(nil), (*protocol.ReadContents)(nil),
		(*inspect.Check)(nil), (*messages.WriteScales)(nil), (*messages.ReadScales)(nil),
		(*protocol.Close)(nil), &protocol.PoolWork{}, messages.Admit{}, 42, "admit",
	}
	for name, s := range map[string]setup{"one engine": {}, "with an encoder": {encodes: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s)
			for _, message := range requests {
				require.ErrorIs(t, r.asActor(message), messages.ErrBadRequest, "%T", message)
				request, typed := message.(messages.Request)
				if !typed {
					continue
				}
				require.ErrorIs(t, r.Do(ctx, request), messages.ErrBadRequest, "%T", request)
				done := make(chan error, 1)
				if err := r.Submit(request, func(err error) { done <- err }); err != nil {
					done <- err
				}
				require.ErrorIs(t, <-done, messages.ErrBadRequest, "%T", request)
			}
			stats, err := r.Stats(ctx)
			require.NoError(t, err)
			require.Zero(t, stats.Restarts)
			r.close()
		})
	}
}

// asActor sends a request as an actor does, and gives what it was aborted for.
func (r *rig) asActor(request any) error {
	r.t.Helper()
	answers := make(chan any, 1)
	host := r.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Request(r.PID(), request)
		case *actor.Stopping, *actor.Stopped:
		default:
			answers <- m
		}
	}))
	defer func() { require.NoError(r.t, r.system.Root.StopFuture(host).Wait()) }()
	select {
	case answer := <-answers:
		aborted, ok := answer.(*messages.Aborted)
		require.True(r.t, ok, "%T was answered by %T", request, answer)
		return aborted.Err
	case <-time.After(time.Minute):
		return errors.New("no answer")
	}
}
