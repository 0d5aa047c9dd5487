package survival_test

import (
	"errors"
	"math"
	"time"

	"github.com/kvactor/kvactor/messages"
)

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
		admitting("empty tokens", messages.ErrBadRequest,
			messages.AdmitRequest{Tokens: []messages.Token{}}),
		admitting("a negative token first", messages.ErrBadRequest, holding(0, -1)),
		admitting("a negative token last", messages.ErrBadRequest, holding(7, -1)),
		admitting("the lowest token", messages.ErrBadRequest, holding(3, math.MinInt32)),
		admitting("a million tokens", messages.ErrOutOfPages, prompt(0, 1_000_000)),
		admitting("one token too long", messages.ErrTooLong, prompt(0, long+1)),
		admitting("twice too long", messages.ErrTooLong, prompt(0, 2*long)),
		admitting("one page too many", messages.ErrOutOfPages, prompt(0, 33*tpb)),
		only(admitting("an encoder's input", messages.ErrNotSupported,
			messages.AdmitRequest{Tokens: run(0, 8), Encoder: run(0, 8)})),
		admitting("items that overlap", messages.ErrBadRequest,
			items(messages.MultimodalItem{Start: 4, Length: 3}, messages.MultimodalItem{Start: 2,
				Length: 3})),
		admitting("an item twice", messages.ErrBadRequest, items(messages.MultimodalItem{Length: 3},
			messages.MultimodalItem{Length: 3})),
		admitting("an item in another", messages.ErrBadRequest,
			items(messages.MultimodalItem{Length: 8}, messages.MultimodalItem{Start: 3, Length: 1})),
		admitting("one bad item of many", messages.ErrBadRequest,
			items(messages.MultimodalItem{Length: 1}, messages.MultimodalItem{Start: 7, Length: 2})),
	}
	for name, q := range map[string]messages.AdmitRequest{
		"an empty item": item(0, 0), "an item of negative length": item(0, -1),
		"an item of the lowest length": item(4, minInt),
		"an item before the prompt":    item(-1, 2), "an item at the lowest place": item(minInt, 1),
		"an item behind the prompt":    item(8, 1),
		"an item at the highest place": item(maxInt, 1), "an item that leaves the prompt": item(7, 2),
		"an item of the highest length": item(1, maxInt),
		"an item that wraps around":     item(maxInt, maxInt),
		"an item that wraps to the start": item(minInt,
			maxInt), "an item at int32's edge": item(math.MaxInt32, 1),
	} {
		list = append(list, admitting(name, messages.ErrBadRequest, q))
	}
	return list
}

func badShapes() []bad {
	var list []bad
	for name, n := range map[string]int{"-1": -1, "1025": 1025, "the lowest": minInt,
		"the highest": maxInt, "int32's highest": math.MaxInt32} {
		q := prompt(0, 8)
		q.BeamWidth = n
		list = append(list, admitting("beam width "+name, messages.ErrBadRequest, q))
	}
	for name, n := range map[string]int{"-4": -4, "1": 1, "6": 6, "the lowest": minInt,
		"the highest": maxInt, "int32's highest": math.MaxInt32} {
		q := prompt(0, 8)
		q.ChunkTokens = n
		list = append(list, admitting("chunks of "+name, messages.ErrBadRequest, q))
	}
	return list
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
		"a range before the start":    kept(r{Start: -1, End: 4}),
		"a range at the lowest place": kept(r{Start: minInt, End: maxInt}),
		"an empty range":              kept(r{Start: 4, End: 4}),
		"a range backwards":           kept(r{Start: 4, End: 3}),
		"a range to the lowest place": kept(r{Start: 0, End: minInt}),
		"a range to -2":               kept(r{Start: 0, End: -2}),
		"a priority of 101":           kept(r{End: 4, Priority: 101}),
		"a priority of 255":           kept(r{End: 4, Priority: 255}),
		"a duration of a nanosecond":  kept(r{End: 4, Duration: 1}),
		"a negative duration":         kept(r{End: 4, Duration: -1}),
		"the lowest duration":         kept(r{End: 4, Duration: math.MinInt64}),
		"just below a millisecond":    kept(r{End: 4, Duration: time.Millisecond - 1}),
		"ranges that overlap":         kept(r{Start: 2, End: 5}, r{Start: 0, End: 3}),
		"the same range twice":        kept(r{End: 5}, r{End: 5}),
		"a range within one":          kept(r{End: maxInt}, r{Start: 3, End: 5}),
		"an open end in the middle":   kept(r{End: messages.EndOfPrompt}, r{Start: 5, End: 6}),
		"two open ends": kept(r{End: messages.EndOfPrompt},
			r{Start: 5, End: messages.EndOfPrompt}),
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
		appending("a negative token", messages.ErrBadRequest, computed,
			messages.AppendStep{Tokens: []messages.Token{1, -1}}),
		appending("and commit too much", messages.ErrBadRequest, computed,
			messages.AppendStep{Tokens: run(0, 1), Computed: 11}),
		appending("and commit the highest", messages.ErrBadRequest, computed,
			messages.AppendStep{Tokens: run(0, 1), Computed: maxInt}),
		appending("and commit the lowest", messages.ErrBadRequest, computed,
			messages.AppendStep{Tokens: run(0, 1), Computed: minInt}),
		appending("a million tokens", messages.ErrOutOfPages, computed,
			messages.AppendStep{Tokens: run(0, 1_000_000)}),
		appending("more than max_seq_len", messages.ErrTooLong, computed,
			messages.AppendStep{Tokens: run(0, long)}),
		appending("beams to no beams", messages.ErrBadRequest, computed,
			messages.AppendStep{Beams: []messages.BeamStep{{}}}),
		appending("tokens to beams", messages.ErrBadRequest, beamed, token),
		appending("no beams", messages.ErrBadRequest, beamed, messages.AppendStep{}),
		appending("a beam too few", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: []messages.BeamStep{{}}}),
		appending("a beam too many", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: make([]messages.BeamStep, 3)}),
		appending("a beam before the first", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: []messages.BeamStep{{Parent: -1}, {}}}),
		appending("a beam behind the last", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: []messages.BeamStep{{}, {Parent: 2}}}),
		appending("the highest beam", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: []messages.BeamStep{{}, {Parent: maxInt}}}),
		appending("a negative token of a beam", messages.ErrBadRequest, beamed,
			messages.AppendStep{Beams: []messages.BeamStep{{}, {Token: -1}}}),
	}
	for name, pick := range strangers {
		list = append(list,
			committing(name, messages.ErrUnknownSequence, pick, 1),
			appending(name, messages.ErrUnknownSequence, pick, token),
			bad{name: "release " + name, code: messages.ErrUnknownSequence, call: func(v *victim) error {
				return one(v.Release(ctx, []messages.ReleaseStep{{Sequence: pick(v)}}))
			}},
			bad{name: "rewind " + name, code: messages.ErrUnknownSequence,
				call: func(v *victim) error { return v.RewindOne(ctx, pick(v), 1) }},
			bad{name: "fork " + name, code: messages.ErrUnknownSequence,
				call: func(v *victim) error { _, err := v.ForkOne(ctx, pick(v), 1); return err }},
			bad{name: "tables " + name, code: messages.ErrUnknownSequence,
				call: func(v *victim) error { _, err := v.TablesOf(ctx, pick(v)); return err }})
	}
	return list
}

// badSequences are rewinds and forks.
func badSequences() []bad {
	var list []bad
	rewind := func(name string, code error, pick func(*victim) messages.SequenceID, n int) {
		list = append(list, bad{name: "rewind " + name, code: code,
			call: func(v *victim) error { return v.RewindOne(ctx, pick(v), n) }})
	}
	fork := func(name string, code error, pick func(*victim) messages.SequenceID, n int) {
		list = append(list, bad{name: "fork " + name, code: code,
			call: func(v *victim) error { _, err := v.ForkOne(ctx, pick(v), n); return err }})
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

// only marks what is bad without an encoder only.
func only(b bad) bad {
	b.alone = true
	return b
}

// asking is every request about a prefix.
func asking(name string, code error, p messages.Prefix, alone bool) []bad {
	call := func(kind string, do func(*victim, messages.Prefix) error) bad {
		return bad{kind + name, code, func(v *victim) error {
			own := p
			if v.input != nil && own.Encoder == nil {
				own.Encoder = v.input
			}
			return do(v, own)
		}, alone}
	}
	return []bad{
		call("lookup ", func(v *victim, p messages.Prefix) error {
			_, err := v.Lookup(ctx, p)
			return err
		}),
		call("pin ", func(v *victim, p messages.Prefix) error { _, err := v.Pin(ctx, p); return err }),
		call("prefetch ", func(v *victim, p messages.Prefix) error {
			_, err := v.Prefetch(ctx, p)
			return err
		}),
		call("invalidate ", func(v *victim, p messages.Prefix) error {
			_, err := v.Invalidate(ctx, messages.Selector{Prefix: &p})
			return err
		}),
	}
}

// badInputs are encoder inputs.
func badInputs() []bad {
	var list []bad
	for name, c := range map[string]struct {
		input []messages.Token
		items []messages.MultimodalItem
		code  error
	}{
		"of a negative token": {input: []messages.Token{1, -1}, code: messages.ErrBadRequest},
		"of the lowest token": {input: []messages.Token{math.MinInt32},
			code: messages.ErrBadRequest},
		"of a token too many": {input: run(0, 8*tpb+1), code: messages.ErrTooLong},
		"of a million tokens": {input: run(0, 1_000_000), code: messages.ErrTooLong},
		"with an item outside": {run(0, 8), []messages.MultimodalItem{{Start: 8, Length: 1}},
			messages.ErrBadRequest},
		"with an item around": {run(0, 8),
			[]messages.MultimodalItem{{Start: maxInt, Length: maxInt}}, messages.ErrBadRequest},
		"with items on each other": {run(0, 8), []messages.MultimodalItem{{Length: 8},
			{Start: 7, Length: 1}}, messages.ErrBadRequest},
	} {
		list = append(list, bad{name: "input " + name, code: c.code, call: func(v *victim) error {
			_, err := v.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 8), Encoder: c.input,
				EncoderItems: c.items})
			return err
		}})
		if !errors.Is(c.code, messages.ErrTooLong) { // which no prefix is
			list = append(list,
				asking("an input "+name, c.code, messages.Prefix{Encoder: c.input, EncoderItems: c.items},
					false)...)
		}
	}
	return append(list, bad{name: "no input", code: messages.ErrBadRequest,
		call: func(v *victim) error {
			_, err := v.Admit(ctx, prompt(0, 8))
			return err
		}}, bad{name: "ranges of an input that overlap", code: messages.ErrBadRequest,
		call: func(v *victim) error {
			q := prompt(0, 8)
			q.Encoder = v.input
			q.EncoderRetention = &messages.Retention{Ranges: []messages.RetentionRange{{End: 4},
				{Start: 3, End: 5}}}
			_, err := v.Admit(ctx, q)
			return err
		}})
}

// badPrefixes are requests about what is stored.
func badPrefixes() []bad {
	var list []bad
	for name, p := range map[string]messages.Prefix{
		"without tokens":   {},
		"a negative token": {Tokens: []messages.Token{1, -1}},
		"an item outside": {Tokens: run(0, 4),
			Multimodal: []messages.MultimodalItem{{Start: 4, Length: 1}}},
		"an item around": {Tokens: run(0, 4),
			Multimodal: []messages.MultimodalItem{{Start: 1, Length: maxInt}}},
		"an encoder's input": {Tokens: run(0, 4), Encoder: run(0, 4)},
		"items over one other": {Tokens: run(0, 4), Multimodal: []messages.MultimodalItem{{Length: 4},
			{Start: 3, Length: 1}}},
	} {
		code := messages.ErrBadRequest
		if p.Encoder != nil {
			code = messages.ErrNotSupported
		}
		list = append(list, asking(name, code, p, p.Encoder != nil || len(p.Tokens) == 0)...)
	}
	for name, s := range map[string]messages.Selector{
		"nothing": {}, "a salt and a session": {Salt: "a", Session: "b"},
		"all three": {Salt: "a", Session: "b", Prefix: &messages.Prefix{Tokens: run(0, 4)}},
	} {
		list = append(list, bad{name: "invalidate " + name, code: messages.ErrBadRequest,
			call: func(v *victim) error { _, err := v.Invalidate(ctx, s); return err }})
	}
	for name, pin := range map[string]messages.PinID{"zero": 0, "the highest": math.MaxUint64,
		"int64's highest": math.MaxInt64} {
		list = append(list, bad{name: "unpin " + name, code: messages.ErrUnknownPin,
			call: func(v *victim) error { return v.Unpin(ctx, pin) }})
	}
	return list
}

// badFractions are rebalances; a and b stand for the pools.
func badFractions() []bad {
	var list []bad
	for name, f := range map[string]map[string]float64{
		"no number": {"a": math.NaN(), "b": 0.5}, "only no numbers": {"a": math.NaN(), "b": math.NaN()},
		"infinity": {"a": math.Inf(1), "b": 0.5}, "both infinities": {"a": math.Inf(1),
			"b": math.Inf(-1)}, "negative": {"a": -0.5, "b": 1.5},
		"zero": {"a": 0, "b": 1}, "more than all": {"a": 0.6, "b": 0.6},
		"less than all": {"a": 0.4, "b": 0.4}, "nothing named": {},
		"one missing": {"a": 1}, "a stranger": {"a": 0.5, "b": 0.4, "c": 0.1},
		"the highest":     {"a": math.MaxFloat64, "b": math.MaxFloat64},
		"next to nothing": {"a": math.SmallestNonzeroFloat64, "b": 1},
	} {
		list = append(list, bad{name: "rebalance " + name, code: messages.ErrBadRequest,
			call: func(v *victim) error {
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
