package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

const openLine4 = `{"op":"open","model":{"layers":2,"kv_heads":2,"head_dim":3,"max_seq_len":64},"cache":{"tokens_per_block":4},"pages":{"primary":16}}`

// talk runs lines over a plain engine and gives the answers and the engine
// opened last.
func talk(t testing.TB, lines ...string) ([]string, *plain) {
	t.Helper()
	var engines []*plain
	var out bytes.Buffer
	require.NoError(t, Run(strings.NewReader(strings.Join(lines, "\n")), &out, openPlain(&engines)))
	answers := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(engines) == 0 {
		return answers, nil
	}
	return answers, engines[len(engines)-1]
}

// codeOf gives the code of an answer, empty if it is ok.
func codeOf(t testing.TB, answer string) messages.Code {
	t.Helper()
	var a struct {
		OK    *bool
		Error struct{ Code messages.Code }
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &a), answer)
	require.NotNil(t, a.OK, answer)
	require.Equal(t, *a.OK, a.Error.Code == "", answer)
	return a.Error.Code
}

// The lines are answered exactly so: field names, order of fields, order of
// pools.
func TestAnswersAsTheyAreWritten(t *testing.T) {
	dialogue := []struct{ line, answer string }{
		{`{"op":"close"}`, `{"op":"close","ok":true,"leaked_pages":0}`},
		{
			`{"op":"open","model":{"layers":3,"kv_heads":1,"head_dim":2,"dtype":"int8","max_seq_len":64},"cache":{"tokens_per_block":2,"max_attention_window":[64,4]},"pages":{"wfullh1":{"primary":8},"w4h1":{"primary":9,"secondary":1}}}`,
			`{"op":"open","ok":true,"pools":[{"name":"w4h1","window":4,"kv_heads":1,"layers":[1],"page_bytes":8,"primary_pages":9,"secondary_pages":0},{"name":"wfullh1","window":null,"kv_heads":1,"layers":[0,2],"page_bytes":16,"primary_pages":8,"secondary_pages":0}]}`,
		},
		{`{"op":"admit","seq":"A<&>","tokens":[1,2,3]}`,
			`{"op":"admit","ok":true,"seq":"A<&>","reused_tokens":0,"why":"cold","tables":{"w4h1":[0,1],"wfullh1":[0,1]},"reuse":{"w4h1":{"full":0,"partial":0,"how":"none","onboarded":0},"wfullh1":{"full":0,"partial":0,"how":"none","onboarded":0}}}`},
		{`{"op":"append","steps":[{"seq":"A<&>","tokens":[4,5]},{"seq":"é","tokens":[1]}]}`,
			`{"op":"append","ok":true,"results":[{"seq":"A<&>","ok":true,"new_pages":{"w4h1":[2],"wfullh1":[2]}},{"seq":"é","ok":false,"error":{"code":"unknown_sequence","message":"sequence \"é\" is not running"}}]}`},
		{`{"op":"commit","seq":"A<&>","computed":5}`,
			`{"op":"commit","ok":true,"new_pages":{"w4h1":[],"wfullh1":[]}}`},
		{`{"op":"tables","seq":"A<&>"}`,
			`{"op":"tables","ok":true,"tables":{"w4h1":[0,1,2],"wfullh1":[0,1,2]}}`},
		{`{"op":"admit_batch","requests":[{"seq":"B","tokens":[1,2,3],"beam_width":2},{"seq":"C","tokens":{"from":0,"count":20}}]}`, `{"op":"admit_batch","ok":true,"results":[{"op":"admit","ok":true,"seq":"B","reused_tokens":2,"why":"cold","tables":{"w4h1":[[0,3],[0,3]],"wfullh1":[[0,3],[0,3]]},"reuse":{"w4h1":{"full":1,"partial":0,"how":"none","onboarded":0},"wfullh1":{"full":1,"partial":0,"how":"none","onboarded":0}}},{"op":"admit","ok":false,"error":{"code":"out_of_pages","message":"pool w4h1 needs 10 pages, 5 available","pool":"w4h1","need":10,"available":5}}]}`},
		{`{"op":"lookup","tokens":[1,2,3,4,5]}`,
			`{"op":"lookup","ok":true,"matched_tokens":4,"primary_tokens":4,"secondary_tokens":0}`},
		{`{"op":"pin","pin":"p","tokens":[1,2,3,4]}`, `{"op":"pin","ok":true,"pinned_tokens":4}`},
		{`{"op":"unpin","pin":"p"}`, `{"op":"unpin","ok":true}`},
		{`{"op":"invalidate","salt":"s"}`, `{"op":"invalidate","ok":true,"blocks":0}`},
		{`{"op":"prefetch","tokens":[1,2]}`, `{"op":"prefetch","ok":true,"onboarded_pages":0}`},
		{`{"op":"reset"}`, `{"op":"reset","ok":true}`},
		{`{"op":"advance","ms":5}`, `{"op":"advance","ok":true}`},
		{`{"op":"rebalance"}`,
			`{"op":"rebalance","ok":true,"pools":[{"name":"w4h1","window":4,"kv_heads":1,"layers":[1],"page_bytes":8,"primary_pages":9,"secondary_pages":0},{"name":"wfullh1","window":null,"kv_heads":1,"layers":[0,2],"page_bytes":16,"primary_pages":8,"secondary_pages":0}],"moved":{"w4h1":[[9,1]],"wfullh1":[]}}`},
		{`{"op":"stats"}`,
			`{"op":"stats","ok":true,"pools":{"w4h1":{"primary":{"total":9,"used":0,"cached":0,"free":0},"secondary":{"total":0,"used":0,"cached":0,"free":0}},"wfullh1":{"primary":{"total":8,"used":0,"cached":0,"free":0},"secondary":{"total":0,"used":0,"cached":0,"free":0}}},"counters":{"requests":2,"prompt_tokens":0,"reused_tokens":0,"pools":{"w4h1":{"allocated_pages":0,"reused_full":0,"reused_partial":0,"missed":0,"evicted":0,"offloaded":0,"onboarded":0,"dropped":0,"bytes_offloaded":0,"bytes_onboarded":0},"wfullh1":{"allocated_pages":1,"reused_full":0,"reused_partial":0,"missed":0,"evicted":0,"offloaded":0,"onboarded":0,"dropped":0,"bytes_offloaded":0,"bytes_onboarded":0}}}}`},
		{`{"op":"events"}`,
			`{"op":"events","ok":true,"events":[{"id":2,"type":"created","pool":"w4h1","primary_pages":3,"secondary_pages":0},{"id":3,"type":"stored","pool":"w4h1","parent":null,"blocks":[{"hash":"01000000000000000000000000000000","tokens":[7],"tier":"primary","priority":35}]},{"id":4,"type":"stored","pool":"w4h1","parent":"01000000000000000000000000000000","blocks":[{"hash":"02000000000000000000000000000000","tokens":[8],"tier":"secondary","priority":0}]},{"id":5,"type":"updated","pool":"w4h1","hash":"01000000000000000000000000000000","tier":["primary","secondary"]},{"id":6,"type":"updated","pool":"w4h1","hash":"01000000000000000000000000000000","priority":[35,0]},{"id":7,"type":"removed","pool":"w4h1","hashes":["01000000000000000000000000000000","02000000000000000000000000000000"]},{"id":8,"type":"cleared"}],"lost":2}`},
		{`{"op":"events","snapshot":true}`,
			`{"op":"events","ok":true,"snapshot":true,"events":[{"id":8,"type":"stored","pool":"w4h1","parent":null,"blocks":[{"hash":"00000000000000000000000000000003","tokens":[9],"tier":"primary","priority":0}]}],"lost":0}`},
		{`{"op":"rewind","seq":"A<&>","tokens":1}`, `{"op":"rewind","ok":true}`},
		{`{"op":"fork","seq":"A<&>","into":["D"]}`, `{"op":"fork","ok":true}`},
		{`{"op":"verify"}`, `{"op":"verify","ok":true,"checked_pages":6,"problems":[]}`},
		{`{"op":"fault","kind":"offload"}`, `{"op":"fault","ok":true}`},
		{`{"op":"fault","kind":"panic","actor":"pool:w4h1"}`, `{"op":"fault","ok":true}`},
		{`{"op":"release","seq":"A<&>"}`, `{"op":"release","ok":true}`},
		{`{"op":"close"}`, `{"op":"close","ok":true,"leaked_pages":6}`},
	}
	var lines []string
	for _, d := range dialogue {
		lines = append(lines, d.line)
	}
	answers, _ := talk(t, lines...)
	require.Len(t, answers, len(dialogue))
	for i, d := range dialogue {
		assert.Equal(t, d.answer, answers[i], d.line)
	}
}

func TestEmptyLinesAndCommentsAreAnsweredByNothing(t *testing.T) {
	answers, _ := talk(t, "", "# a comment", "  \t", "\r", `{"op":"close"}`+"\r", "#",
		`{"op":"close"}`)
	assert.Len(t, answers, 2)
}

// Each answer is out before the next line is asked for: a program at the other
// end of a pipe waits for it.
func TestAnswersAreFlushedLineByLine(t *testing.T) {
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	done := make(chan error)
	go func() { done <- Run(in, out, nil) }()
	buffer := make([]byte, 1000)
	for range 3 {
		_, err := io.WriteString(ask, `{"op":"close"}`+"\n")
		require.NoError(t, err)
		n, err := answer.Read(buffer)
		require.NoError(t, err)
		assert.Equal(t, `{"op":"close","ok":true,"leaked_pages":0}`+"\n", string(buffer[:n]))
	}
	require.NoError(t, ask.Close())
	require.NoError(t, <-done)
}

func TestTheEndOfInputClosesTheEngine(t *testing.T) {
	_, e := talk(t, openLine4)
	assert.True(t, e.closed)
}

func TestAnEngineMayBeOpenedAgain(t *testing.T) {
	answers, _ := talk(t, openLine4, `{"op":"admit","seq":"A","tokens":[1]}`, `{"op":"close"}`,
		openLine4, `{"op":"admit","seq":"A","tokens":[1]}`)
	assert.Empty(t, codeOf(t, answers[4]), "names end with their engine")
}

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, errors.New("the disk is gone") }
func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe is closed") }

func TestRunTellsWhatItCannotReadOrWrite(t *testing.T) {
	assert.ErrorContains(t, Run(broken{}, io.Discard, nil), "the disk is gone")
	var engines []*plain
	err := Run(strings.NewReader(openLine4+"\n"+`{"op":"stats"}`), broken{}, openPlain(&engines))
	assert.ErrorContains(t, err, "the pipe is closed")
	assert.True(t, engines[0].closed)
}

func TestLongLines(t *testing.T) {
	long := `{"op":"lookup","tokens":[1` + strings.Repeat(",1", 50_000) + `]}`
	answers, _ := talk(t, openLine4, long, `{"op":"lookup","tokens":[1]}`)
	assert.Empty(t, codeOf(t, answers[1]))

	tooLong := `{"op":"stats","` + strings.Repeat("x", maxLine) + `":1}`
	answers, _ = talk(t, openLine4, tooLong, `{"op":"stats"}`)
	assert.Contains(t, answers[1], "longer than")
	assert.Empty(t, codeOf(t, answers[2]), "the next line is read from its beginning")
}

func TestTheClockMovesWithAdvanceAlone(t *testing.T) {
	answers, e := talk(t, openLine4, `{"op":"advance","ms":0}`, `{"op":"advance","ms":1500}`,
		`{"op":"stats"}`, `{"op":"advance","ms":9223372036854775807}`, `{"op":"advance","ms":1}`)
	assert.EqualValues(t, 1_501_000_000, e.setup.Clock.Now())
	assert.Equal(t, messages.ErrBadRequest, codeOf(t, answers[4]))
}

func TestOpenFillsInDefaults(t *testing.T) {
	_, e := talk(t,
		`{"op":"open","model":{"layers":1,"kv_heads":2,"head_dim":8,"dtype":null,"max_seq_len":null},"cache":null,"pages":null,"seed":null}`)
	s := e.setup
	assert.Equal(t, 4096, s.Model.MaxSeqLen)
	assert.EqualValues(t, "float16", s.Model.DType)
	assert.Equal(t, 32, s.Cache.TokensPerBlock)
	assert.True(t, s.Cache.EnableBlockReuse)
	assert.False(t, s.Cache.OffloadAhead, "off in scripts")
	assert.Nil(t, s.Pages)
	assert.EqualValues(t, 64<<20, s.DeviceMemory)
	assert.EqualValues(t, 1, s.Seed)
}

func TestOpenPassesOnWhatIsGiven(t *testing.T) {
	answers, e := talk(t, strings.ReplaceAll(openEverything, "\n", ""))
	require.Empty(t, codeOf(t, answers[0]), answers[0])
	s := e.setup
	assert.Equal(t, []int{1, 2}, s.Model.KVHeads)
	assert.Equal(t, []int{16}, s.Cache.MaxAttentionWindow)
	assert.Equal(t, 3, s.Cache.SinkTokenLength)
	assert.Equal(t, "float32", s.Cache.DType)
	assert.InDelta(t, 0.5, s.Cache.FreeGPUMemoryFraction, 0)
	assert.Equal(t, 64, s.Cache.MaxTokens)
	assert.EqualValues(t, 4096, s.Cache.HostCacheSize)
	assert.Equal(t, 0, s.Cache.SecondaryOffloadMinPriority)
	assert.False(t, s.Cache.EnablePartialReuse)
	assert.False(t, s.Cache.CopyOnPartialReuse)
	assert.Equal(t, 9, s.Cache.EventBufferMaxSize)
	assert.Equal(t, 50, s.Cache.ExpectedSeqLen)
	assert.Equal(t, map[string]float64{"w16h1": 0.25, "w16h2": 0.75}, s.Cache.PoolFractions)
	assert.True(t, s.Cache.OffloadAhead)
	require.Len(t, s.Pages, 2)
	assert.Equal(t, 6, s.Pages[1].Secondary)
	assert.EqualValues(t, 1_000_000, s.DeviceMemory)
	assert.EqualValues(t, -7, s.Seed)
}

const openEverything = `{"op":"open","model":{"layers":2,"kv_heads":[1,2],"head_dim":8,"dtype":"fp8","max_seq_len":100},
"device_memory":1000000,"seed":-7,"cache":{"tokens_per_block":8,"max_attention_window":[16],"sink_token_length":3,
"dtype":"float32","free_gpu_memory_fraction":0.5,"max_tokens":64,"host_cache_size":4096,
"secondary_offload_min_priority":0,"onboard_blocks":true,"enable_block_reuse":true,"enable_partial_reuse":false,
"copy_on_partial_reuse":false,"event_buffer_max_size":9,"use_uvm":false,"eviction_policy":"priority_lru",
"expected_seq_len":50,"pool_fractions":{"w16h1":0.25,"w16h2":0.75},"offload_ahead":true,
"cross_kv_cache_fraction":null,"transfer_mode":null},"pages":{"primary":5,"secondary":6}}`

// decode reads an answer.
func decode(t testing.TB, answer string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(answer), into), answer)
}
