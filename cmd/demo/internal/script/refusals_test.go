package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// hash64 is a right content hash.
var hash64 = strings.Repeat("aB", 32)

// refusalCases lists lines that are refused as a whole: those of a wrong shape
// whether or not an engine is open, the others only by an open one, to which
// all of them find sequence A, of 5 tokens with 5 computed, and pin p.
var refusalCases = []struct {
	line  string
	shape bool
	code  messages.Code
	says  string // a part of the message
}{
	// No request at all.
	{`{`, true, messages.ErrBadRequest, "no JSON"},
	{`nonsense`, true, messages.ErrBadRequest, "no JSON"},
	{`{"op":"stats"} {"op":"stats"}`, true, messages.ErrBadRequest, "no JSON"},
	{`{"op":"stats",}`, true, messages.ErrBadRequest, "no JSON"},
	{"{\"op\":\"st\xffats\"}", true, messages.ErrBadRequest, "UTF-8"},
	{`[]`, true, messages.ErrBadRequest, "the line is a list, not an object"},
	{`7`, true, messages.ErrBadRequest, "a number"},
	{`null`, true, messages.ErrBadRequest, "null"},
	{`{}`, true, messages.ErrBadRequest, "op is missing"},
	{`{"op":null}`, true, messages.ErrBadRequest, "op is missing"},
	{`{"op":5}`, true, messages.ErrBadRequest, "op is a number"},
	{`{"op":"dance"}`, true, messages.ErrBadRequest, `unknown op "dance"`},
	{`{"op":"Stats"}`, true, messages.ErrBadRequest, "unknown op"},
	{strings.Repeat("[", 20_000), true, messages.ErrBadRequest, "no JSON"},

	// Fields.
	{`{"op":"stats","x":1}`, true, messages.ErrBadRequest, `stats: unknown field "x"`},
	{`{"op":"stats","x":null}`, true, messages.ErrBadRequest, `unknown field "x"`},
	{`{"op":"stats","op":"stats"}`, true, messages.ErrBadRequest, "twice"},
	{`{"op":"admit","seq":"N","tokens":[1],"tokens":[2]}`, true, messages.ErrBadRequest,
		`"tokens" stands twice`},
	{`{"op":"admit","seq":"N","tokens":{"from":0,"count":1,"count":2}}`, true, messages.ErrBadRequest,
		`"tokens.count" stands twice`},
	{`{"op":"append","seq":"A"}`, true, messages.ErrBadRequest, "append: field steps is missing"},
	{`{"op":"admit","tokens":[1]}`, true, messages.ErrBadRequest, "admit: field seq is missing"},
	{`{"op":"admit","seq":null,"tokens":[1]}`, true, messages.ErrBadRequest, "seq is missing"},
	{`{"op":"admit","seq":"N"}`, true, messages.ErrBadRequest, "tokens is missing"},
	{`{"op":"admit","seq":7,"tokens":[1]}`, true, messages.ErrBadRequest,
		"seq is a number, not a string"},
	{`{"op":"admit","seq":"N","tokens":"1"}`, true, messages.ErrBadRequest, "tokens is a string"},
	{`{"op":"admit","seq":"N","tokens":[1,"2"]}`, true, messages.ErrBadRequest,
		"tokens[1] is a string, not an integer"},
	{`{"op":"admit","seq":"N","tokens":[1,null]}`, true, messages.ErrBadRequest, "tokens[1]"},
	{`{"op":"admit","seq":"N","tokens":[1.0]}`, true, messages.ErrBadRequest, "tokens[0]"},
	{`{"op":"admit","seq":"N","tokens":[1e1]}`, true, messages.ErrBadRequest, "tokens[0]"},
	{`{"op":"admit","seq":"N","tokens":[true]}`, true, messages.ErrBadRequest, "tokens[0]"},
	{`{"op":"admit","seq":"N","tokens":{"from":0}}`, true, messages.ErrBadRequest,
		"tokens.count is missing"},
	{`{"op":"admit","seq":"N","tokens":{"from":0,"count":2,"step":1}}`, true, messages.ErrBadRequest,
		`unknown field "tokens.step"`},
	{`{"op":"admit","seq":"N","tokens":{"from":"0","count":2}}`, true, messages.ErrBadRequest,
		"tokens.from"},
	{`{"op":"admit","seq":"N","tokens":[1],"salt":1}`, true, messages.ErrBadRequest, "salt"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":{}}`, true, messages.ErrBadRequest,
		"multimodal is an object, not a list"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + hash64 + `","start":0}]}`, true,
		messages.ErrBadRequest, "multimodal[0].length is missing"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":[]}`, true, messages.ErrBadRequest,
		"retention is a list, not an object"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":0}]}}`, true,
		messages.ErrBadRequest, "retention.ranges[0].priority is missing"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"range":[]}}`, true, messages.ErrBadRequest,
		`"retention.range"`},
	{`{"op":"admit","seq":"N","tokens":[1],"beam_width":"2"}`, true, messages.ErrBadRequest,
		"beam_width"},
	{`{"op":"admit_batch"}`, true, messages.ErrBadRequest, "requests is missing"},
	{`{"op":"admit_batch","requests":[7]}`, true, messages.ErrBadRequest, "requests[0] is a number"},
	{`{"op":"admit_batch","requests":[{"seq":"N","tokens":[1]},{"seq":"M"}]}`, true,
		messages.ErrBadRequest, "requests[1].tokens is missing"},
	{`{"op":"admit_batch","requests":[{"op":"admit","seq":"N","tokens":[1]}]}`, true,
		messages.ErrBadRequest, `"requests[0].op"`},
	{`{"op":"append","steps":[{"seq":"A"}]}`, true, messages.ErrBadRequest, "tokens is missing"},
	{`{"op":"append","steps":[{"seq":"A","tokens":[1],"beams":[]}]}`, true, messages.ErrBadRequest,
		"both"},
	{`{"op":"append","steps":[{"seq":"A","beams":[{"parent":0}]}]}`, true, messages.ErrBadRequest,
		"steps[0].beams[0].token is missing"},
	{`{"op":"fork","seq":"A"}`, true, messages.ErrBadRequest, "into is missing"},
	{`{"op":"fork","seq":"A","into":["x",1]}`, true, messages.ErrBadRequest, "into[1]"},
	{`{"op":"release","seq":"A","store":1}`, true, messages.ErrBadRequest,
		"store is a number, not true or false"},
	{`{"op":"rewind","seq":"A","tokens":[1]}`, true, messages.ErrBadRequest,
		"tokens is a list, not an integer"},
	{`{"op":"commit","seq":"A"}`, true, messages.ErrBadRequest, "computed is missing"},
	{`{"op":"invalidate"}`, true, messages.ErrBadRequest, "missing"},
	{`{"op":"invalidate","session":"s","salt":"t"}`, true, messages.ErrBadRequest, "more than one"},
	{`{"op":"invalidate","session":"s","tokens":[1]}`, true, messages.ErrBadRequest, "more than one"},
	{`{"op":"invalidate","session":"s","lora":"l"}`, true, messages.ErrBadRequest, "more than one"},
	{`{"op":"weights"}`, true, messages.ErrBadRequest, "epoch"},
	{`{"op":"weights","epoch":1}`, true, messages.ErrBadRequest, "epoch"},
	{`{"op":"reset","running":1}`, true, messages.ErrBadRequest, "running"},
	{`{"op":"fault","kind":"panic"}`, true, messages.ErrBadRequest, "actor is missing"},
	{`{"op":"events","snapshot":"yes"}`, true, messages.ErrBadRequest, "snapshot"},
	{`{"op":"rebalance","fractions":{"wfullh2":"all"}}`, true, messages.ErrBadRequest,
		"fractions.wfullh2"},
	{`{"op":"open","model":{"layers":1,"kv_heads":1}}`, true, messages.ErrBadRequest,
		"model.head_dim is missing"},
	{`{"op":"open"}`, true, messages.ErrBadRequest, "model is missing"},
	{`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1,"heads":1}}`, true,
		messages.ErrBadRequest, `"model.heads"`},
	{`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"cache":{"tokens_per_block":"4"}}`,
		true, messages.ErrBadRequest, "cache.tokens_per_block"},
	{`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"pages":{"secondary":4}}`, true,
		messages.ErrBadRequest, "pages.primary is missing"},
	{`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"pages":{"wfullh1":4}}`, true,
		messages.ErrBadRequest, "pages.wfullh1 is a number, not an object"},

	// Open already: it comes before the values of open.
	{`{"op":"open","model":{"layers":0,"kv_heads":1,"head_dim":1}}`, false, codeAlreadyOpen,
		"already"},

	// Values.
	{`{"op":"admit","seq":"N","tokens":[]}`, false, messages.ErrBadRequest, "tokens is empty"},
	{`{"op":"admit","seq":"N","tokens":[-1]}`, false, messages.ErrBadRequest, "token -1"},
	{`{"op":"admit","seq":"N","tokens":[2147483648]}`, false, messages.ErrBadRequest,
		"token 2147483648"},
	{`{"op":"admit","seq":"N","tokens":[99999999999999999999999]}`, false, messages.ErrBadRequest,
		"token"},
	{`{"op":"admit","seq":"N","tokens":{"from":0,"count":0}}`, false, messages.ErrBadRequest,
		"count 0"},
	{`{"op":"admit","seq":"N","tokens":{"from":-1,"count":2}}`, false, messages.ErrBadRequest,
		"from -1"},
	{`{"op":"admit","seq":"N","tokens":{"from":2147483647,"count":2}}`, false, messages.ErrBadRequest,
		"2 tokens"},
	{`{"op":"admit","seq":"N","tokens":[1],"salt":""}`, false, messages.ErrBadRequest,
		"salt is empty"},
	{`{"op":"admit","seq":"N","tokens":[1],"prefill":"later"}`, false, messages.ErrBadRequest,
		"prefill"},
	{`{"op":"admit","seq":"N","tokens":[1],"beam_width":0}`, false, messages.ErrBadRequest,
		"beam_width"},
	{`{"op":"admit","seq":"N","tokens":[1],"chunk_tokens":0}`, false, messages.ErrBadRequest,
		"chunk_tokens"},
	{`{"op":"admit","seq":"N","tokens":[1],"chunk_tokens":6}`, false, messages.ErrBadRequest,
		"chunk_tokens"},
	{`{"op":"admit","seq":"N","tokens":[1],"chunk_tokens":4,"beam_width":2}`, false,
		messages.ErrNotSupported, "exclude"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"ab","start":0,"length":1}]}`, false,
		messages.ErrBadRequest, "64 hex digits"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + strings.Repeat("g", 64) +
		`","start":0,"length":1}]}`, false, messages.ErrBadRequest, "64 hex digits"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + hash64 +
		`ab","start":0,"length":1}]}`, false, messages.ErrBadRequest, "64 hex digits"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + hash64 +
		`","start":0,"length":0}]}`, false, messages.ErrBadRequest, "not inside"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + hash64 +
		`","start":-1,"length":1}]}`, false, messages.ErrBadRequest, "not inside"},
	{`{"op":"admit","seq":"N","tokens":[1],"multimodal":[{"hash":"` + hash64 +
		`","start":9223372036854775807,"length":9223372036854775807}]}`, false, messages.ErrBadRequest,
		"not inside"},
	{`{"op":"admit","seq":"N","tokens":[1,2],"multimodal":[{"hash":"` + hash64 +
		`","start":1,"length":1},{"hash":"` + hash64 + `","start":0,"length":2}]}`, false,
		messages.ErrBadRequest, "overlap"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":0,"end":-1,"priority":1}]}}`, false, messages.ErrBadRequest, "empty"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":-1,"end":1,"priority":1}]}}`, false, messages.ErrBadRequest, "starts at -1"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":0,"priority":101}]}}`,
		false, messages.ErrBadRequest, "priority 101"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":0,"priority":256}]}}`,
		false, messages.ErrBadRequest, "priority 256"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"ranges":[{"start":0,"priority":1,"duration_ms":0}]}}`, false, messages.ErrBadRequest, "duration_ms 0"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"decode_priority":-1}}`, false,
		messages.ErrBadRequest, "priority -1"},
	{`{"op":"admit","seq":"N","tokens":[1],"retention":{"decode_duration_ms":-5}}`, false,
		messages.ErrBadRequest, "decode_duration_ms"},
	{`{"op":"lookup","tokens":[]}`, false, messages.ErrBadRequest, "empty"},
	{`{"op":"lookup","tokens":[1],"salt":""}`, false, messages.ErrBadRequest, "salt"},
	{`{"op":"prefetch","tokens":[-3]}`, false, messages.ErrBadRequest, "token -3"},
	{`{"op":"pin","pin":"q","tokens":[]}`, false, messages.ErrBadRequest, "empty"},
	{`{"op":"invalidate","salt":""}`, false, messages.ErrBadRequest, "salt"},
	{`{"op":"invalidate","tokens":[]}`, false, messages.ErrBadRequest, "empty"},
	{`{"op":"rewind","seq":"A","tokens":-1}`, false, messages.ErrBadRequest, "-1"},
	{`{"op":"rewind","seq":"missing","tokens":-1}`, false, messages.ErrBadRequest, "-1"},
	{`{"op":"rewind","seq":"missing","tokens":0}`, false, messages.ErrBadRequest,
		"0 is not 1 or more"},
	{`{"op":"fork","seq":"missing","into":[]}`, false, messages.ErrBadRequest, "into is empty"},
	{`{"op":"rewind","seq":"A","tokens":9223372036854775807}`, false, messages.ErrBadRequest, ""},
	{`{"op":"commit","seq":"A","computed":-1}`, false, messages.ErrBadRequest, "negative"},
	{`{"op":"commit","seq":"A","computed":4}`, false, messages.ErrBadRequest, ""},
	{`{"op":"commit","seq":"A","computed":6}`, false, messages.ErrBadRequest, ""},
	{`{"op":"commit","seq":"A","computed":99999999999999999999}`, false, messages.ErrBadRequest, ""},
	{`{"op":"advance","ms":-1}`, false, messages.ErrBadRequest, "negative"},
	{`{"op":"fault","kind":"fire"}`, false, messages.ErrBadRequest, "fire"},
	{`{"op":"fault","kind":"copy","count":0}`, false, messages.ErrBadRequest, "count 0"},
	{`{"op":"fault","kind":"copy","actor":"tree"}`, false, messages.ErrBadRequest, "actor"},
	{`{"op":"fault","kind":"panic","actor":"pool:w1h1"}`, false, messages.ErrBadRequest, "pool:w1h1"},
	{`{"op":"fault","kind":"panic","actor":"tree","count":2}`, false, messages.ErrBadRequest, "count"},

	// Names.
	{`{"op":"admit","seq":"A","tokens":[1]}`, false, codeDuplicateSequence, `"A"`},
	{`{"op":"admit","seq":"A","tokens":[-1]}`, false, messages.ErrBadRequest, "token -1"},
	{`{"op":"admit","seq":"A","tokens":{"from":0,"count":65}}`, false, codeDuplicateSequence, `"A"`},
	{`{"op":"commit","seq":"a","computed":0}`, false, messages.ErrUnknownSequence, `"a"`},
	{`{"op":"rewind","seq":"missing","tokens":1}`, false, messages.ErrUnknownSequence, "missing"},
	{`{"op":"release","seq":""}`, false, messages.ErrUnknownSequence, ""},
	{`{"op":"tables","seq":"missing"}`, false, messages.ErrUnknownSequence, "missing"},
	{`{"op":"fork","seq":"missing","into":["A"]}`, false, messages.ErrUnknownSequence, "missing"},
	{`{"op":"fork","seq":"A","into":["B","A"]}`, false, codeDuplicateSequence, `"A"`},
	{`{"op":"fork","seq":"A","into":["B","B"]}`, false, codeDuplicateSequence, `"B"`},
	{`{"op":"pin","pin":"p","tokens":[1]}`, false, messages.ErrBadRequest, `"p"`},
	{`{"op":"unpin","pin":"q"}`, false, messages.ErrUnknownPin, `"q"`},

	// Lengths, then pages.
	{`{"op":"admit","seq":"N","tokens":{"from":0,"count":65}}`, false, messages.ErrTooLong, "65"},
	{`{"op":"admit","seq":"N","tokens":{"from":0,"count":2147483648}}`, false, messages.ErrTooLong,
		"2147483648"},
	{`{"op":"lookup","tokens":{"from":0,"count":2147483648}}`, false, messages.ErrTooLong,
		"2147483648"},
	{`{"op":"admit","seq":"N","tokens":{"from":100,"count":64}}`, false, messages.ErrOutOfPages,
		"pages"},
}

func TestRefusals(t *testing.T) {
	require.Greater(t, len(refusalCases), 120)
	for _, r := range refusalCases {
		name := r.line
		if len(name) > 60 {
			name = name[:60]
		}
		t.Run(name, func(t *testing.T) {
			answers, _ := talk(t, r.line)
			if r.shape {
				assert.Equal(t, r.code, codeOf(t, answers[0]))
			} else if !strings.Contains(r.line, `"open"`) {
				assert.Equal(t, codeNotOpen, codeOf(t, answers[0]), "values are looked at after not_open")
			}
			scene := []string{openLine4, `{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}`,
				`{"op":"pin","pin":"p","tokens":[1,2,3,4]}`}
			_, before := talk(t, scene...)
			answers, after := talk(t, append(scene, r.line)...)
			assert.Equal(t, r.code, codeOf(t, answers[3]))
			assert.Contains(t, answers[3], strings.ReplaceAll(r.says, `"`, `\"`))
			assert.Equal(t, before.calls, after.calls, "a refused request changes nothing")
			assert.Equal(t, before.refs, after.refs)
		})
	}
}

// The op of a refused line is echoed where there is one.
func TestRefusalsEchoTheOp(t *testing.T) {
	answers, _ := talk(t, `{"op":"stats","x":1}`, `{"op":"dance"}`, `{"op":5}`, `[1]`, `{`)
	for i, op := range []string{"stats", "dance", "", "", ""} {
		assert.True(t,
			strings.HasPrefix(answers[i],
				fmt.Sprintf(`{"op":%q,"ok":false,"error":{"code":"bad_request","message":"`, op)), answers[i])
	}
}

// Wrong values of open are reported in one message.
func TestOpenReportsEverythingAtOnce(t *testing.T) {
	cases := []struct {
		name, line string
		says       []string
	}{
		{
			"values of model, cache and pages",
			`{"op":"open","model":{"layers":0,"kv_heads":0,"head_dim":-1,"dtype":"float12"},"cache":{"tokens_per_block":24,"use_uvm":true,"transfer_mode":"x","block_size":5},"pages":{"primary":0,"secondary":-1}}`,
			[]string{"layers 0", "kv_heads 0", "head_dim -1", "float12", "tokens_per_block 24", "use_uvm",
				"transfer_mode", "block_size", "primary 0", "secondary -1"},
		},
		{
			"values that mean absent to the configuration",
			`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"cache":{"max_tokens":0,"expected_seq_len":0,"cross_kv_cache_fraction":0,"max_attention_window":[]}}`,
			[]string{"max_tokens 0", "expected_seq_len 0", "cross_kv_cache_fraction",
				"max_attention_window is an empty list"},
		},
		{
			"pools that are not there",
			`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"pages":{"w8h1":{"primary":2}}}`,
			[]string{"lacks pool wfullh1", `names "w8h1"`},
		},
		{
			"numbers out of all bounds",
			`{"op":"open","model":{"layers":99999999999999999999,"kv_heads":[1,2],"head_dim":1},"pages":{"primary":1e0}}`,
			nil, // 1e0 is no integer: a matter of shape
		},
		{
			"a list that is too short, though one value would do for the configuration",
			`{"op":"open","model":{"layers":2,"kv_heads":[1],"head_dim":1},"cache":{"max_tokens":0}}`,
			[]string{"kv_heads has 1 values for 2 layers", "max_tokens 0"},
		},
		{
			"a model of states alone",
			`{"op":"open","model":{"layers":1,"kv_heads":[0],"head_dim":1,"state":{"layers":[0],"bytes":8}},"pages":{"wfullh1":{"primary":2}}}`,
			[]string{"kv_heads is 0 in every layer: at least one must have keys and values",
				`names "wfullh1"`},
		},
		{
			"more pages than a pool may have",
			`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"pages":{"primary":99999999999999999999}}`,
			[]string{"primary"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			answers, e := talk(t, c.line)
			assert.Nil(t, e)
			if c.says == nil {
				assert.Equal(t, messages.ErrBadRequest, codeOf(t, answers[0]))
				return
			}
			assert.Equal(t, messages.ErrConfigInvalid, codeOf(t, answers[0]))
			for _, s := range c.says {
				assert.Contains(t, answers[0], strings.ReplaceAll(s, `"`, `\"`))
			}
		})
	}
	answers, _ := talk(t,
		`{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":1},"device_memory":0}`)
	assert.Equal(t, messages.ErrBadRequest, codeOf(t, answers[0]),
		"device_memory is no part of the configuration")
}

// results gives the codes of the items of a batch.
func results(t *testing.T, answer string) []string {
	t.Helper()
	var a struct {
		Results []struct {
			OK    bool
			Error struct{ Code string }
		}
	}
	decode(t, answer, &a)
	codes := make([]string, len(a.Results))
	for i, r := range a.Results {
		codes[i] = r.Error.Code
		require.Equal(t, r.OK, codes[i] == "")
	}
	return codes
}

func TestBatchesRefuseOneRequestAndServeTheOthers(t *testing.T) {
	answers, e := talk(t, openLine4, `{"op":"admit","seq":"A","tokens":[1]}`, oneLine(`{"op":"admit_batch","requests":[
		{"seq":"A","tokens":[1]},
		{"seq":"x","tokens":[-1]},
		{"seq":"x","tokens":[1],"salt":""},
		{"seq":"x","tokens":{"from":0,"count":65}},
		{"seq":"x","tokens":[1],"chunk_tokens":3},
		{"seq":"x","tokens":{"from":0,"count":64}},
		{"seq":"x","tokens":[1]},
		{"seq":"y","tokens":[1]},
		{"seq":"y","tokens":[]}]}`))
	// The sixth is valid and finds no pages, so its name is taken for the rest.
	assert.Equal(t, []string{
		"duplicate_sequence", "bad_request", "bad_request", "too_long", "bad_request",
		"out_of_pages", "duplicate_sequence", "", "bad_request",
	}, results(t, answers[2]))
	assert.Len(t, e.running, 2)
}

func TestAppendRefusesOneStepAndServesTheOthers(t *testing.T) {
	answers, e := talk(t, openLine4, oneLine(`{"op":"admit_batch","requests":[
		{"seq":"A","tokens":[1]},{"seq":"B","tokens":[2],"beam_width":2},{"seq":"M","tokens":[3],"prefill":"manual"},{"seq":"L","tokens":{"from":0,"count":16}}]}`),
		oneLine(`{"op":"append","steps":[
		{"seq":"A","tokens":[-1]},
		{"seq":"A","tokens":{"from":0,"count":64}},
		{"seq":"A","tokens":{"from":0,"count":2147483648}},
		{"seq":"A","beams":[{"parent":0,"token":1}]},
		{"seq":"A","tokens":[5]},
		{"seq":"A","tokens":[6]},
		{"seq":"missing","tokens":[1]},
		{"seq":"M","tokens":[1]},
		{"seq":"M","tokens":[1]},
		{"seq":"B","tokens":[1]},
		{"seq":"B","beams":[]},
		{"seq":"B","beams":[{"parent":0,"token":1}]},
		{"seq":"B","beams":[{"parent":2,"token":1},{"parent":0,"token":1}]},
		{"seq":"B","beams":[{"parent":-1,"token":1},{"parent":0,"token":1}]},
		{"seq":"B","beams":[{"parent":1,"token":7},{"parent":1,"token":8}]},
		{"seq":"L","tokens":{"from":0,"count":48}}]}`))
	assert.Equal(t, []string{
		"bad_request", "too_long", "too_long", "bad_request", "", "bad_request", "unknown_sequence",
		"bad_request", "bad_request", "bad_request", "bad_request", "bad_request", "bad_request",
		"bad_request", "", "out_of_pages",
	}, results(t, answers[2]))
	assert.Equal(t, []messages.Token{1, 5}, e.running[1].beams[0])
}

func TestEmptyBatchesAreServed(t *testing.T) {
	answers, _ := talk(t, openLine4, `{"op":"admit_batch","requests":[]}`,
		`{"op":"append","steps":[]}`)
	assert.Equal(t, `{"op":"admit_batch","ok":true,"results":[]}`, answers[1])
	assert.Equal(t, `{"op":"append","ok":true,"results":[]}`, answers[2])
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "") }
