package survival_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

const (
	maxInt = math.MaxInt
	minInt = math.MinInt
)

// victim is an engine in the middle of its life, which hostile calls must leave
// as it is.
type victim struct {
	*rig
	computed messages.SequenceID // a sequence whose prompt of 9 tokens is computed
	prefill  messages.SequenceID // one whose prompt of 12 is not
	chunked  messages.SequenceID // 20 tokens, chunks of 4
	beams    messages.SequenceID // 5 tokens, two beams
	ended    messages.SequenceID
	pools    []messages.PoolInfo
}

func newVictim(t *testing.T) *victim {
	pages := windows.Counts{Primary: 32, Secondary: 8}
	v := &victim{rig: newRig(t, setup{windows: []int{long, 4 * tpb}, pages: []windows.Counts{pages, pages}})}
	v.pools = v.Pools()
	v.computed = v.admit(prompt(0, 9)).Sequence
	v.compute(v.computed, 9)
	v.ended = v.admit(prompt(100, 9)).Sequence
	v.compute(v.ended, 9)
	v.release(v.ended)
	v.prefill = v.admit(prompt(200, 12)).Sequence
	q := prompt(300, 20)
	q.ChunkTokens = tpb
	v.chunked = v.admit(q).Sequence
	q = prompt(400, 5)
	q.BeamWidth = 2
	v.beams = v.admit(q).Sequence
	v.compute(v.beams, 5)
	return v
}

func (v *victim) end() {
	v.release(v.computed, v.prefill, v.chunked, v.beams)
	v.close()
}

// seen is everything that shows a change.
type seen struct {
	Stats    messages.Stats
	Contents []messages.Content
	Tables   []messages.Tables
	Pools    []messages.PoolInfo
}

func (v *victim) look() seen {
	v.t.Helper()
	var s seen
	var err error
	s.Stats, err = v.Stats(ctx)
	require.NoError(v.t, err)
	s.Stats.Rounds = 0 // a refused request is one
	s.Contents, err = v.Contents(ctx)
	require.NoError(v.t, err)
	for _, id := range []messages.SequenceID{v.computed, v.prefill, v.chunked, v.beams} {
		t, err := v.Tables(ctx, id)
		require.NoError(v.t, err)
		s.Tables = append(s.Tables, t)
	}
	s.Pools = v.Pools()
	return s
}

// bad is a call and the code that it must be refused with.
type bad struct {
	name string
	code error
	call func(*victim) error
}

func admitting(name string, code error, q messages.AdmitRequest) bad {
	return bad{"admit " + name, code, func(v *victim) error { _, err := v.Admit(ctx, q); return err }}
}

func committing(name string, code error, pick func(*victim) messages.SequenceID, n int) bad {
	return bad{"commit " + name, code, func(v *victim) error {
		return one(v.Commit(ctx, []messages.CommitStep{{Sequence: pick(v), Computed: n}}))
	}}
}

func appending(name string, code error, pick func(*victim) messages.SequenceID, s messages.AppendStep) bad {
	return bad{"append " + name, code, func(v *victim) error {
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

func badPrompts() []bad {
	item := func(start, length int) messages.AdmitRequest {
		q := prompt(0, 8)
		q.Multimodal = []messages.MultimodalItem{{Start: start, Length: length}}
		return q
	}
	items := func(list ...messages.MultimodalItem) messages.AdmitRequest {
		q := prompt(0, 8)
		q.Multimodal = list
		return q
	}
	holding := func(at int, token messages.Token) messages.AdmitRequest {
		q := prompt(0, 8)
		q.Tokens[at] = token
		return q
	}
	list := []bad{
		admitting("without tokens", messages.ErrBadRequest, messages.AdmitRequest{}),
		admitting("empty tokens", messages.ErrBadRequest, messages.AdmitRequest{Tokens: []messages.Token{}}),
		admitting("a negative token first", messages.ErrBadRequest, holding(0, -1)),
		admitting("a negative token last", messages.ErrBadRequest, holding(7, -1)),
		admitting("the lowest token", messages.ErrBadRequest, holding(3, math.MinInt32)),
		admitting("a million tokens", messages.ErrOutOfPages, prompt(0, 1_000_000)),
		admitting("one token too long", messages.ErrTooLong, prompt(0, long+1)),
		admitting("twice too long", messages.ErrTooLong, prompt(0, 2*long)),
		admitting("one page too many", messages.ErrOutOfPages, prompt(0, 33*tpb)),
		admitting("an encoder's input", messages.ErrNotSupported, messages.AdmitRequest{Tokens: run(0, 8), Encoder: run(0, 8)}),
		admitting("items that overlap", messages.ErrBadRequest, items(messages.MultimodalItem{Start: 4, Length: 3}, messages.MultimodalItem{Start: 2, Length: 3})),
		admitting("an item twice", messages.ErrBadRequest, items(messages.MultimodalItem{Length: 3}, messages.MultimodalItem{Length: 3})),
		admitting("an item in another", messages.ErrBadRequest, items(messages.MultimodalItem{Length: 8}, messages.MultimodalItem{Start: 3, Length: 1})),
		admitting("one bad item of many", messages.ErrBadRequest, items(messages.MultimodalItem{Length: 1}, messages.MultimodalItem{Start: 7, Length: 2})),
	}
	for name, q := range map[string]messages.AdmitRequest{
		"an empty item": item(0, 0), "an item of negative length": item(0, -1), "an item of the lowest length": item(4, minInt),
		"an item before the prompt": item(-1, 2), "an item at the lowest place": item(minInt, 1), "an item behind the prompt": item(8, 1),
		"an item at the highest place": item(maxInt, 1), "an item that leaves the prompt": item(7, 2), "an item of the highest length": item(1, maxInt),
		"an item that wraps around": item(maxInt, maxInt), "an item that wraps to the start": item(minInt, maxInt), "an item at int32's edge": item(math.MaxInt32, 1),
	} {
		list = append(list, admitting(name, messages.ErrBadRequest, q))
	}
	return list
}

func badShapes() []bad {
	var list []bad
	for name, n := range map[string]int{"-1": -1, "1025": 1025, "the lowest": minInt, "the highest": maxInt, "int32's highest": math.MaxInt32} {
		q := prompt(0, 8)
		q.BeamWidth = n
		list = append(list, admitting("beam width "+name, messages.ErrBadRequest, q))
	}
	for name, n := range map[string]int{"-4": -4, "1": 1, "6": 6, "the lowest": minInt, "the highest": maxInt, "int32's highest": math.MaxInt32} {
		q := prompt(0, 8)
		q.ChunkTokens = n
		list = append(list, admitting("chunks of "+name, messages.ErrBadRequest, q))
	}
	q := prompt(0, 8)
	q.ChunkTokens, q.BeamWidth = tpb, 2
	return append(list, admitting("chunks and beams", messages.ErrNotSupported, q))
}

func badRetention() []bad {
	kept := func(ranges ...messages.RetentionRange) messages.AdmitRequest {
		q := prompt(0, 8)
		q.Retention = &messages.Retention{Ranges: ranges}
		return q
	}
	decode := func(d messages.DecodeRetention) messages.AdmitRequest {
		q := prompt(0, 8)
		q.Retention = &messages.Retention{Decode: &d}
		return q
	}
	type r = messages.RetentionRange
	var list []bad
	for name, q := range map[string]messages.AdmitRequest{
		"a range before the start": kept(r{Start: -1, End: 4}), "a range at the lowest place": kept(r{Start: minInt, End: maxInt}),
		"an empty range": kept(r{Start: 4, End: 4}), "a range backwards": kept(r{Start: 4, End: 3}), "a range to the lowest place": kept(r{Start: 0, End: minInt}),
		"a range to -2": kept(r{Start: 0, End: -2}), "a priority of 101": kept(r{End: 4, Priority: 101}), "a priority of 255": kept(r{End: 4, Priority: 255}),
		"a duration of a nanosecond": kept(r{End: 4, Duration: 1}), "a negative duration": kept(r{End: 4, Duration: -1}),
		"the lowest duration":          kept(r{End: 4, Duration: math.MinInt64}),
		"just below a millisecond":     kept(r{End: 4, Duration: time.Millisecond - 1}),
		"ranges that overlap":          kept(r{Start: 2, End: 5}, r{Start: 0, End: 3}),
		"the same range twice":         kept(r{End: 5}, r{End: 5}),
		"a range within one":           kept(r{End: maxInt}, r{Start: 3, End: 5}),
		"an open end in the middle":    kept(r{End: messages.EndOfPrompt}, r{Start: 5, End: 6}),
		"two open ends":                kept(r{End: messages.EndOfPrompt}, r{Start: 5, End: messages.EndOfPrompt}),
		"a decode priority of 101":     decode(messages.DecodeRetention{Priority: 101}),
		"a decode duration below 1 ms": decode(messages.DecodeRetention{Duration: 1}),
		"a negative decode duration":   decode(messages.DecodeRetention{Duration: -time.Hour}),
	} {
		list = append(list, admitting(name, messages.ErrBadRequest, q))
	}
	return list
}

func badSteps() []bad {
	token := messages.AppendStep{Tokens: run(0, 1)}
	list := []bad{
		committing("less than is computed", messages.ErrBadRequest, computed, 8),
		committing("more than there is", messages.ErrBadRequest, computed, 10),
		committing("-1", messages.ErrBadRequest, computed, -1),
		committing("the lowest", messages.ErrBadRequest, prefill, minInt),
		committing("the highest", messages.ErrBadRequest, prefill, maxInt),
		committing("int32's highest", messages.ErrBadRequest, prefill, math.MaxInt32),
		committing("off a block boundary", messages.ErrBadRequest, prefill, 3),
		committing("beyond the chunk", messages.ErrBadRequest, chunked, 2*tpb),
		appending("to a prompt that is not computed", messages.ErrBadRequest, prefill, token),
		appending("nothing", messages.ErrBadRequest, computed, messages.AppendStep{}),
		appending("a negative token", messages.ErrBadRequest, computed, messages.AppendStep{Tokens: []messages.Token{1, -1}}),
		appending("and commit too much", messages.ErrBadRequest, computed, messages.AppendStep{Tokens: run(0, 1), Computed: 11}),
		appending("and commit the highest", messages.ErrBadRequest, computed, messages.AppendStep{Tokens: run(0, 1), Computed: maxInt}),
		appending("and commit the lowest", messages.ErrBadRequest, computed, messages.AppendStep{Tokens: run(0, 1), Computed: minInt}),
		appending("a million tokens", messages.ErrOutOfPages, computed, messages.AppendStep{Tokens: run(0, 1_000_000)}),
		appending("more than max_seq_len", messages.ErrTooLong, computed, messages.AppendStep{Tokens: run(0, long)}),
		appending("beams to no beams", messages.ErrBadRequest, computed, messages.AppendStep{Beams: []messages.BeamStep{{}}}),
		appending("tokens to beams", messages.ErrBadRequest, beamed, token),
		appending("no beams", messages.ErrBadRequest, beamed, messages.AppendStep{}),
		appending("a beam too few", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: []messages.BeamStep{{}}}),
		appending("a beam too many", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: make([]messages.BeamStep, 3)}),
		appending("a beam before the first", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: []messages.BeamStep{{Parent: -1}, {}}}),
		appending("a beam behind the last", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: []messages.BeamStep{{}, {Parent: 2}}}),
		appending("the highest beam", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: []messages.BeamStep{{}, {Parent: maxInt}}}),
		appending("a negative token of a beam", messages.ErrBadRequest, beamed, messages.AppendStep{Beams: []messages.BeamStep{{}, {Token: -1}}}),
	}
	for name, pick := range strangers {
		list = append(list,
			committing(name, messages.ErrUnknownSequence, pick, 1), appending(name, messages.ErrUnknownSequence, pick, token),
			bad{"release " + name, messages.ErrUnknownSequence, func(v *victim) error {
				return one(v.Release(ctx, []messages.ReleaseStep{{Sequence: pick(v)}}))
			}},
			bad{"rewind " + name, messages.ErrUnknownSequence, func(v *victim) error { return v.Rewind(ctx, pick(v), 1) }},
			bad{"fork " + name, messages.ErrUnknownSequence, func(v *victim) error { _, err := v.Fork(ctx, pick(v), 1); return err }},
			bad{"tables " + name, messages.ErrUnknownSequence, func(v *victim) error { _, err := v.Tables(ctx, pick(v)); return err }})
	}
	return list
}

// badLives are rewinds and forks.
func badLives() []bad {
	var list []bad
	rewind := func(name string, code error, pick func(*victim) messages.SequenceID, n int) {
		list = append(list, bad{"rewind " + name, code, func(v *victim) error { return v.Rewind(ctx, pick(v), n) }})
	}
	fork := func(name string, code error, pick func(*victim) messages.SequenceID, n int) {
		list = append(list, bad{"fork " + name, code, func(v *victim) error { _, err := v.Fork(ctx, pick(v), n); return err }})
	}
	rewind("nothing", messages.ErrBadRequest, computed, 0)
	rewind("-1", messages.ErrBadRequest, computed, -1)
	rewind("the lowest", messages.ErrBadRequest, computed, minInt)
	rewind("the highest", messages.ErrBadRequest, computed, maxInt)
	rewind("into the prompt", messages.ErrBadRequest, computed, 1)
	rewind("beams", messages.ErrNotSupported, beamed, 1)
	fork("none", messages.ErrBadRequest, computed, 0)
	fork("-1", messages.ErrBadRequest, computed, -1)
	fork("the lowest", messages.ErrBadRequest, computed, minInt)
	fork("the highest", messages.ErrBadRequest, computed, maxInt)
	fork("int32's highest", messages.ErrBadRequest, computed, math.MaxInt32)
	fork("a prompt that is not computed", messages.ErrBadRequest, prefill, 1)
	fork("beams", messages.ErrNotSupported, beamed, 1)
	return list
}

// badPrefixes are requests about what is stored.
func badPrefixes() []bad {
	var list []bad
	for name, p := range map[string]messages.Prefix{
		"without tokens":       {},
		"a negative token":     {Tokens: []messages.Token{1, -1}},
		"an item outside":      {Tokens: run(0, 4), Multimodal: []messages.MultimodalItem{{Start: 4, Length: 1}}},
		"an item around":       {Tokens: run(0, 4), Multimodal: []messages.MultimodalItem{{Start: 1, Length: maxInt}}},
		"an encoder's input":   {Tokens: run(0, 4), Encoder: run(0, 4)},
		"items over one other": {Tokens: run(0, 4), Multimodal: []messages.MultimodalItem{{Length: 4}, {Start: 3, Length: 1}}},
	} {
		code := messages.ErrBadRequest
		if p.Encoder != nil {
			code = messages.ErrNotSupported
		}
		list = append(list,
			bad{"lookup " + name, code, func(v *victim) error { _, err := v.Lookup(ctx, p); return err }},
			bad{"pin " + name, code, func(v *victim) error { _, err := v.Pin(ctx, p); return err }},
			bad{"prefetch " + name, code, func(v *victim) error { _, err := v.Prefetch(ctx, p); return err }},
			bad{"invalidate " + name, code, func(v *victim) error {
				_, err := v.Invalidate(ctx, messages.Selector{Prefix: &p})
				return err
			}})
	}
	for name, s := range map[string]messages.Selector{
		"nothing": {}, "a salt and a session": {Salt: "a", Session: "b"},
		"all three": {Salt: "a", Session: "b", Prefix: &messages.Prefix{Tokens: run(0, 4)}},
	} {
		list = append(list, bad{"invalidate " + name, messages.ErrBadRequest, func(v *victim) error { _, err := v.Invalidate(ctx, s); return err }})
	}
	for name, pin := range map[string]messages.PinID{"zero": 0, "the highest": math.MaxUint64, "int64's highest": math.MaxInt64} {
		list = append(list, bad{"unpin " + name, messages.ErrUnknownPin, func(v *victim) error { return v.Unpin(ctx, pin) }})
	}
	return list
}

// badFractions are rebalances; a and b stand for the pools.
func badFractions() []bad {
	var list []bad
	for name, f := range map[string]map[string]float64{
		"no number": {"a": math.NaN(), "b": 0.5}, "only no numbers": {"a": math.NaN(), "b": math.NaN()},
		"infinity": {"a": math.Inf(1), "b": 0.5}, "both infinities": {"a": math.Inf(1), "b": math.Inf(-1)}, "negative": {"a": -0.5, "b": 1.5},
		"zero": {"a": 0, "b": 1}, "more than all": {"a": 0.6, "b": 0.6}, "less than all": {"a": 0.4, "b": 0.4}, "nothing named": {},
		"one missing": {"a": 1}, "a stranger": {"a": 0.5, "b": 0.4, "c": 0.1}, "the highest": {"a": math.MaxFloat64, "b": math.MaxFloat64},
		"next to nothing": {"a": math.SmallestNonzeroFloat64, "b": 1},
	} {
		code := messages.ErrBadRequest
		if name == "next to nothing" {
			code = messages.ErrConfigInvalid
		}
		list = append(list, bad{"rebalance " + name, code, func(v *victim) error {
			named := map[string]float64{}
			for key, fraction := range f {
				switch key {
				case "a":
					key = v.pools[0].Name
				case "b":
					key = v.pools[1].Name
				}
				named[key] = fraction
			}
			_, err := v.Rebalance(ctx, named)
			return err
		}})
	}
	return list
}

func TestHostileCallsAreRefusedAndChangeNothing(t *testing.T) {
	var list []bad
	for _, some := range [][]bad{badPrompts(), badShapes(), badRetention(), badSteps(), badLives(), badPrefixes(), badFractions()} {
		list = append(list, some...)
	}
	require.Greater(t, len(list), 120)
	v := newVictim(t)
	before := v.look()
	for _, b := range list {
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
	results, err := v.Commit(ctx, []messages.CommitStep{{Sequence: v.prefill, Computed: 4}, {Sequence: v.prefill, Computed: 8}})
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
		Ranges: []messages.RetentionRange{{Start: maxInt - 1, End: maxInt}, {End: 5, Duration: math.MaxInt64}},
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

// What is no request at all is refused, and the engine goes on.
func TestWhatIsNoRequest(t *testing.T) {
	for name, request := range map[string]any{
		"a number": 42, "a word": "admit", "an answer": &messages.PoolWork{}, "a request by value": messages.Admit{}, "no request": (*messages.Admit)(nil), "nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before := v.look()
			var refusal *messages.Refusal
			require.ErrorAs(t, v.Do(ctx, request), &refusal)
			after := v.look()
			after.Stats.Restarts = before.Stats.Restarts
			require.Equal(t, before, after)
			v.end()
		})
	}
}

// badConfig is a configuration that no engine may come of.
type badConfig struct {
	name   string
	change func(*actors.Config)
}

func cacheOf(name string, change func(*windows.Config)) badConfig {
	return badConfig{name, func(c *actors.Config) { change(&c.Cache) }}
}

func modelWith(name string, change func(*windows.Model)) badConfig {
	return badConfig{name, func(c *actors.Config) { change(&c.Model) }}
}

func badConfigs() []badConfig {
	list := []badConfig{
		cacheOf("a window of 1", func(c *windows.Config) { c.MaxAttentionWindow = []int{1} }),
		cacheOf("no window", func(c *windows.Config) { c.MaxAttentionWindow = []int{} }),
		cacheOf("a window of 0 behind others", func(c *windows.Config) { c.MaxAttentionWindow = []int{long, 0} }),
		cacheOf("the lowest window", func(c *windows.Config) { c.MaxAttentionWindow = []int{minInt} }),
		cacheOf("a negative sink", func(c *windows.Config) { c.SinkTokenLength = -1 }),
		cacheOf("no such dtype", func(c *windows.Config) { c.DType = "float8" }),
		cacheOf("no such policy", func(c *windows.Config) { c.EvictionPolicy = "random" }),
		cacheOf("uvm", func(c *windows.Config) { c.UseUVM = true }),
		cacheOf("a transfer mode", func(c *windows.Config) { c.TransferMode = "gds" }),
		cacheOf("max_tokens below 0", func(c *windows.Config) { c.MaxTokens = minInt }),
		cacheOf("host memory below 0", func(c *windows.Config) { c.HostCacheSize = math.MinInt64 }),
		cacheOf("expected length above max_seq_len", func(c *windows.Config) { c.ExpectedSeqLen = maxInt }),
		cacheOf("priority -1", func(c *windows.Config) { c.SecondaryOffloadMinPriority = -1 }),
		cacheOf("priority 101", func(c *windows.Config) { c.SecondaryOffloadMinPriority = 101 }),
		cacheOf("events below 0", func(c *windows.Config) { c.EventBufferMaxSize = -1 }),
		cacheOf("no pool named", func(c *windows.Config) { c.PoolFractions = map[string]float64{} }),
		cacheOf("a pool's fraction no number", func(c *windows.Config) { c.PoolFractions = map[string]float64{"wfullh1": math.NaN()} }),
		cacheOf("a strange pool", func(c *windows.Config) { c.PoolFractions = map[string]float64{"other": 1} }),
		modelWith("no layers", func(m *windows.Model) { m.Layers = 0 }),
		modelWith("too many layers", func(m *windows.Model) { m.Layers = maxInt }),
		modelWith("no heads", func(m *windows.Model) { m.KVHeads = []int{0} }),
		modelWith("heads for no layer", func(m *windows.Model) { m.KVHeads = nil }),
		modelWith("heads for other layers", func(m *windows.Model) { m.KVHeads = []int{1, 1, 1} }),
		modelWith("the most heads", func(m *windows.Model) { m.KVHeads = []int{maxInt} }),
		modelWith("heads below 0", func(m *windows.Model) { m.KVHeads = []int{minInt} }),
		modelWith("a head of nothing", func(m *windows.Model) { m.HeadDim = 0 }),
		modelWith("the largest head", func(m *windows.Model) { m.HeadDim = maxInt }),
		modelWith("heads and sizes that wrap around", func(m *windows.Model) { m.KVHeads, m.HeadDim = []int{1 << 32}, 1<<32 }),
		modelWith("no dtype", func(m *windows.Model) { m.DType = "" }),
		modelWith("sequences of nothing", func(m *windows.Model) { m.MaxSeqLen = 0 }),
		modelWith("the longest sequences", func(m *windows.Model) { m.MaxSeqLen = maxInt }),
		modelWith("an encoder of no heads", func(m *windows.Model) { m.CrossLayers, m.EncoderMaxLen = 1, 8 }),
		{"no device", func(c *actors.Config) { c.Device = nil }},
	}
	for _, n := range []int{0, 1, 3, -4, 24, maxInt, minInt, math.MaxInt32} {
		list = append(list, cacheOf("blocks of no power of two", func(c *windows.Config) { c.TokensPerBlock = n }))
	}
	list = append(list, cacheOf("the largest blocks", func(c *windows.Config) { c.TokensPerBlock = 1 << 62 }))
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		list = append(list, cacheOf("a fraction outside (0, 1)", func(c *windows.Config) { c.FreeGPUMemoryFraction = f }))
	}
	for _, n := range []windows.Counts{
		{}, {Primary: -1}, {Primary: minInt}, {Primary: maxInt}, {Primary: math.MaxInt32 + 1}, {Primary: windows.MaxPages + 1},
		{Primary: 1, Secondary: -1}, {Primary: 1, Secondary: maxInt}, {Primary: 1, Secondary: minInt}, {Primary: 1, Secondary: windows.MaxPages + 1},
	} {
		list = append(list, badConfig{"absurd pages", func(c *actors.Config) { c.Pages = []windows.Counts{n} }})
	}
	return append(list,
		badConfig{"pages of no pool", func(c *actors.Config) { c.Pages = []windows.Counts{} }},
		badConfig{"pages of another pool", func(c *actors.Config) { c.Pages = make([]windows.Counts, 2) }})
}

// Absurd numbers are refused before memory is touched.
func TestHostileConfigurationsAreRefused(t *testing.T) {
	system := newSystem()
	for _, b := range badConfigs() {
		s := setup{}
		config := s.config(t)
		device := config.Device
		b.change(&config)
		e, err := actors.Spawn(system.Root, config)
		if !assert.ErrorIs(t, err, messages.ErrConfigInvalid, b.name) {
			if err == nil {
				_, _ = e.Close(ctx)
			}
			continue
		}
		memory, err := device.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.Total, memory.Free, b.name)
	}
	system.Shutdown()
}

// Page counts that are allowed, but more than the device holds.
func TestMorePagesThanMemory(t *testing.T) {
	system := newSystem()
	s := setup{pages: []windows.Counts{{Primary: windows.MaxPages}}}
	config := s.config(t)
	_, err := actors.Spawn(system.Root, config)
	require.Error(t, err)
	assert.NotErrorIs(t, err, messages.ErrInternal)
	var refusal *messages.Refusal
	if errors.As(err, &refusal) {
		t.Logf("refused as %s", refusal.Code)
	}
	memory, err := config.Device.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory.Total, memory.Free)
	system.Shutdown()
}
