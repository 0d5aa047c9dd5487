package script

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// verified checks that the last answer is that of a verify without problems.
func verified(t *testing.T, answers []string) {
	t.Helper()
	var a struct {
		CheckedPages int `json:"checked_pages"`
		Problems     []string
	}
	decode(t, answers[len(answers)-1], &a)
	assert.Positive(t, a.CheckedPages)
	assert.Empty(t, a.Problems)
}

// served checks that every line was.
func served(t *testing.T, lines, answers []string) {
	t.Helper()
	require.Len(t, answers, len(lines))
	for i := range lines {
		require.Emptyf(t, codeOf(t, answers[i]), "%s: %s", lines[i], answers[i])
		require.NotContains(t, answers[i], `"ok":false`)
	}
}

// played are scenes and what the host sends to the engine in them.
var played = []struct {
	name  string
	lines []string
	calls []string
}{
	{
		"admit commits the prompt",
		[]string{`{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}`},
		[]string{"admit 1", "commit 1 5"},
	},
	{
		"a batch is admitted before anything is committed",
		[]string{`{"op":"admit_batch","requests":[{"seq":"A","tokens":[1,2,3,4,5]},{"seq":"B","tokens":[1,2],"prefill":"manual"},{"seq":"C","tokens":[9]}]}`},
		[]string{"admit 1", "admit 2", "admit 3", "commit 1 5", "commit 3 1"},
	},
	{
		"chunks end at block boundaries, those of one sequence before the next",
		[]string{`{"op":"admit_batch","requests":[{"seq":"A","tokens":{"from":1,"count":13},"chunk_tokens":4},{"seq":"B","tokens":{"from":50,"count":17},"chunk_tokens":8},{"seq":"C","tokens":[9]}]}`},
		[]string{"admit 1", "admit 2", "admit 3", "commit 1 4", "commit 1 8", "commit 1 12",
			"commit 1 13", "commit 2 8", "commit 2 16", "commit 2 17", "commit 3 1"},
	},
	{
		"a prompt that ends with its chunk is committed in one piece",
		[]string{`{"op":"admit","seq":"A","tokens":[1,2,3],"chunk_tokens":4}`,
			`{"op":"admit","seq":"B","tokens":{"from":5,"count":8},"chunk_tokens":8}`},
		[]string{"admit 1", "commit 1 3", "admit 2", "commit 2 8"},
	},
	{
		"append computes all tokens but the last",
		[]string{`{"op":"admit","seq":"A","tokens":[1,2,3]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[4]}]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[5]}]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[6,7,8]}]}`},
		[]string{"admit 1", "commit 1 3", "append 1", "append 1", "commit 1 4", "append 1", "commit 1 7"},
	},
	{
		"one engine step for all sequences of a line",
		[]string{`{"op":"admit","seq":"A","tokens":[1,2,3]}`, `{"op":"admit","seq":"B","tokens":[4]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[4,5]},{"seq":"B","tokens":[4,5]}]}`},
		[]string{"admit 1", "commit 1 3", "admit 2", "commit 2 1", "append 1", "append 2", "commit 1 4",
			"commit 2 2"},
	},
	{
		"manual sequences and their forks are committed by commit alone",
		[]string{
			`{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"prefill":"manual"}`,
			`{"op":"commit","seq":"A","computed":4}`,
			`{"op":"commit","seq":"A","computed":5}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[6,7,8,9]}]}`,
			`{"op":"fork","seq":"A","into":["B"]}`, `{"op":"append","steps":[{"seq":"B","tokens":[10]}]}`,
			`{"op":"commit","seq":"A","computed":9}`, `{"op":"commit","seq":"B","computed":8}`,
			`{"op":"commit","seq":"B","computed":8}`,
		},
		[]string{"admit 1", "commit 1 4", "commit 1 5", "append 1", "fork 1 1", "append 2", "commit 1 9",
			"commit 2 8", "commit 2 8"},
	},
	{
		"a rewound sequence goes on from its new length",
		[]string{
			`{"op":"admit","seq":"A","tokens":[1,2,3]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[4,5,6,7,8,9]}]}`,
			`{"op":"rewind","seq":"A","tokens":4}`, `{"op":"append","steps":[{"seq":"A","tokens":[10]}]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[11]}]}`,
		},
		[]string{"admit 1", "commit 1 3", "append 1", "commit 1 8", "rewind 1 4", "append 1", "append 1",
			"commit 1 6"},
	},
	{
		"forks copy what they write",
		[]string{
			`{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[6,7]}]}`,
			`{"op":"fork","seq":"A","into":["B","C"]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[8]},{"seq":"B","tokens":[9]},{"seq":"C","tokens":[10]}]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[8]},{"seq":"B","tokens":[9]},{"seq":"C","tokens":[10]}]}`,
		},
		[]string{"admit 1", "commit 1 5", "append 1", "commit 1 6", "fork 1 2", "append 1", "append 2",
			"append 3", "commit 1 7", "commit 2 7", "commit 3 7", "append 1", "append 2", "append 3",
			"commit 1 8", "commit 2 8", "commit 3 8"},
	},
	{
		"beams follow their parents",
		[]string{
			`{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"beam_width":3}`,
			`{"op":"append","steps":[{"seq":"A","beams":[{"parent":0,"token":6},{"parent":0,"token":7},{"parent":0,"token":8}]}]}`,
			`{"op":"append","steps":[{"seq":"A","beams":[{"parent":2,"token":6},{"parent":2,"token":7},{"parent":1,"token":8}]}]}`,
			`{"op":"append","steps":[{"seq":"A","beams":[{"parent":1,"token":6},{"parent":0,"token":7},{"parent":1,"token":8}]}]}`,
			`{"op":"append","steps":[{"seq":"A","beams":[{"parent":0,"token":6},{"parent":0,"token":7},{"parent":2,"token":8}]}]}`,
		},
		[]string{"admit 1", "commit 1 5", "append 1", "append 1", "commit 1 6", "append 1", "commit 1 7",
			"append 1", "commit 1 8"},
	},
	{
		"release stores unless told otherwise",
		[]string{`{"op":"admit","seq":"A","tokens":[1,2,3,4]}`,
			`{"op":"admit","seq":"B","tokens":[1,2,3,4]}`, `{"op":"release","seq":"A"}`,
			`{"op":"release","seq":"B","store":false}`},
		[]string{"admit 1", "commit 1 4", "admit 2", "commit 2 4", "release 1 discard=false",
			"release 2 discard=true"},
	},
	{
		"covered tokens are other tokens",
		[]string{
			`{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"salt":"s","lora":"","multimodal":[{"hash":"` +
				hash64 + `","start":1,"length":2}]}`,
			`{"op":"append","steps":[{"seq":"A","tokens":[6,7,8]}]}`,
		},
		[]string{"admit 1", "commit 1 5", "append 1", "commit 1 7"},
	},
}

// What the host sends to the engine, and that the bytes are right after it.
func TestHostCommitsWhatItHasComputed(t *testing.T) {
	for _, c := range played {
		t.Run(c.name, func(t *testing.T) {
			lines := append(append([]string{openLine4}, c.lines...), `{"op":"verify"}`)
			answers, e := talk(t, lines...)
			served(t, lines, answers)
			assert.Equal(t, c.calls, e.calls)
			verified(t, answers)
		})
	}
}

// A commit of what is committed already computes nothing, and leaves a fork its own
// later kernel: the fork's release names that one.
func TestRepeatedCommitsKeepTheLastKernelOfForks(t *testing.T) {
	answers, e := talk(t, openLine4,
		`{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"prefill":"manual"}`,
		`{"op":"commit","seq":"A","computed":5}`,
		`{"op":"append","steps":[{"seq":"A","tokens":[6,7,8,9]}]}`,
		`{"op":"fork","seq":"A","into":["B"]}`,
		`{"op":"commit","seq":"A","computed":8}`,
		`{"op":"append","steps":[{"seq":"B","tokens":[10]}]}`, `{"op":"commit","seq":"B","computed":6}`,
		`{"op":"commit","seq":"A","computed":8}`, `{"op":"release","seq":"B"}`,
		`{"op":"release","seq":"A"}`)
	require.Len(t, e.releasedAfter, 2, answers)
	assert.Equal(t, uint64(3), e.releasedAfter[0].Seq, "the kernel of B's own commit is the third")
	assert.Equal(t, uint64(2), e.releasedAfter[1].Seq)
}

// A commit that the engine will refuse writes nothing.
func TestRefusedCommitsWriteNothing(t *testing.T) {
	scene := []string{openLine4,
		`{"op":"admit","seq":"A","tokens":{"from":0,"count":13},"prefill":"manual","chunk_tokens":8}`}
	for _, computed := range []string{"5", "12", "13", "14"} {
		answers, e := talk(t, append(scene, `{"op":"commit","seq":"A","computed":`+computed+`}`)...)
		assert.Equal(t, messages.ErrBadRequest, codeOf(t, answers[2]))
		assert.Zero(t, e.memory.seq, "kernels")
	}
}

// Verify sees a copy that was lost, and the kernel that read it says so too.
func TestVerifySeesLostCopies(t *testing.T) {
	var engines []*plain
	open := openPlain(&engines)
	script := strings.Join([]string{
		openLine4,
		`{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}`,
		`{"op":"append","steps":[{"seq":"A","tokens":[6,7]}]}`,
		`{"op":"fork","seq":"A","into":["B"]}`,
		`{"op":"append","steps":[{"seq":"B","tokens":[8]}]}`,
		`{"op":"verify"}`,
		`{"op":"verify"}`,
	}, "\n")
	var out strings.Builder
	require.NoError(t, Run(strings.NewReader(script), &out, func(s Setup) (*Rig, error) {
		rig, err := open(s)
		engines[0].memory.lose = 1
		return rig, err
	}))
	answers := strings.Split(out.String(), "\n")
	assert.Contains(t, answers[5],
		"block 1 of B): layer 0, K, head 0, token 0 of the block: wrong bytes")
	assert.Contains(t, answers[5], "read by a kernel: layer 0, K, head 0, token 0")
	assert.NotContains(t, answers[6], "read by a kernel", "told once")
	assert.Contains(t, answers[6], "block 1 of B")
}

func TestVerifyTellsWhatEngineAndDeviceFind(t *testing.T) {
	var engines []*plain
	open := openPlain(&engines)
	var out strings.Builder
	drained := 0
	require.NoError(t, Run(strings.NewReader(openLine4+"\n"+`{"op":"verify"}`), &out,
		func(s Setup) (*Rig, error) {
			rig, err := open(s)
			engines[0].memory.lose = -1
			rig.Hazards = func() []string { return []string{"an unordered read"} }
			rig.Drain = func() { drained++ }
			return rig, err
		}))
	assert.Contains(t, out.String(), `"problems":["one thing","another thing","an unordered read"]`)
	assert.Equal(t, 2, drained, "at verify and at the end")
}

// A sequence that went down with an actor answers sequence_lost until it is
// released or its name is used again. The engine is told at once.
func TestLostSequencesAreAdmittedAgain(t *testing.T) {
	var engines []*plain
	open := openPlain(&engines)
	lines := []string{
		openLine4, `{"op":"admit","seq":"A","tokens":[1,2,3]}`, `{"op":"admit","seq":"B","tokens":[5]}`,
		`{"op":"fault","kind":"panic","actor":"tree"}`,
		`{"op":"append","steps":[{"seq":"A","tokens":[1]}]}`, `{"op":"tables","seq":"A"}`,
		`{"op":"release","seq":"A"}`, `{"op":"verify"}`,
		`{"op":"admit","seq":"A","tokens":[1,2,3]}`, `{"op":"tables","seq":"A"}`,
		`{"op":"admit","seq":"A","tokens":[1]}`, `{"op":"admit","seq":"B","tokens":[1]}`,
	}
	var out strings.Builder
	require.NoError(t, Run(strings.NewReader(strings.Join(lines, "\n")), &out,
		func(s Setup) (*Rig, error) {
			rig, err := open(s)
			rig.PanicActor = func(string) error { engines[0].lost[1] = true; return nil }
			return rig, err
		}))
	answers := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, []string{"sequence_lost"}, results(t, answers[4]))
	assert.Equal(t, messages.ErrSequenceLost, codeOf(t, answers[5]))
	assert.Equal(t, messages.ErrSequenceLost, codeOf(t, answers[6]))
	assert.Empty(t, engines[0].lost)
	assert.Empty(t, codeOf(t, answers[7]))
	assert.Empty(t, codeOf(t, answers[8]))
	assert.Empty(t, codeOf(t, answers[9]))
	assert.Equal(t, codeDuplicateSequence, codeOf(t, answers[10]))
	assert.Equal(t, codeDuplicateSequence, codeOf(t, answers[11]))
}

func TestFaultsReachTheDevice(t *testing.T) {
	_, e := talk(t, openLine4, `{"op":"fault","kind":"offload"}`,
		`{"op":"fault","kind":"onboard","count":3}`,
		`{"op":"fault","kind":"panic","actor":"coordinator"}`)
	assert.Equal(t, 4, e.failures)
	assert.Equal(t, []string{"coordinator"}, e.panicked)
}

func TestSelectors(t *testing.T) {
	_, e := talk(t, openLine4, `{"op":"invalidate","session":""}`,
		`{"op":"invalidate","session":"s","salt":null}`, `{"op":"invalidate","salt":"t"}`,
		`{"op":"invalidate","tokens":[1],"salt":"t","lora":"","multimodal":[{"hash":"`+hash64+
			`","start":0,"length":1}]}`)
	hash := [32]byte{}
	for i := range hash {
		hash[i] = 0xab
	}
	assert.Equal(t, []messages.Selector{
		{Session: "\x00"}, // to the engine the empty name is none
		{Session: "s"},
		{Salt: "t"},
		{Prefix: &messages.Prefix{
			Namespace: messages.Namespace{Salt: "t", HasLoRA: true}, Tokens: []messages.Token{1},
			Multimodal: []messages.MultimodalItem{{Hash: hash, Length: 1}},
		}},
	}, e.selectors)
}

func TestRetentionAsTheEngineGetsIt(t *testing.T) {
	_, e := talk(t, openLine4,
		`{"op":"admit","seq":"A","tokens":[1],"retention":{"ranges":[{"start":2,"priority":0},{"start":0,"end":2,"priority":100,"duration_ms":1500}],"decode_priority":5}}`,
		`{"op":"admit","seq":"B","tokens":[1],"retention":{"ranges":null,"decode_duration_ms":1}}`,
		`{"op":"admit","seq":"C","tokens":[1],"retention":{}}`,
		`{"op":"admit","seq":"D","tokens":[1],"retention":{"decode_duration_ms":99999999999999999999}}`,
		`{"op":"admit","seq":"E","tokens":[1],"retention":null}`)
	require.Len(t, e.retention, 4)
	assert.Equal(t, &messages.Retention{
		Ranges: []messages.RetentionRange{{Start: 2, End: messages.EndOfPrompt},
			{End: 2, Priority: 100, Duration: 1_500_000_000}},
		Decode: &messages.DecodeRetention{Priority: 5},
	}, e.retention[0])
	assert.Equal(t, &messages.DecodeRetention{Priority: 35, Duration: 1_000_000},
		e.retention[1].Decode)
	assert.True(t, e.retention[2].IsZero())
	assert.Equal(t, 2*maxTime, e.retention[3].Decode.Duration)
}

func TestRetentionConfigAsTheEngineGetsIt(t *testing.T) {
	answers, e := talk(t, openLine4,
		`{"op":"admit","seq":"A","tokens":[1],"kv_cache_retention_config":{"token_range_retention_configs":`+
			`[{"token_start":0,"token_end":2,"priority":100,"duration_ms":1500}],"decode_retention_priority":5,"transfer_mode":"DRAM"}}`,
		`{"op":"admit","seq":"B","tokens":[1],"kv_cache_retention_config":{"ranges":[]}}`,
		`{"op":"admit","seq":"B","tokens":[1],"kv_cache_retention_config":{},"retention":{}}`)
	require.Len(t, e.retention, 1)
	assert.Equal(t, &messages.Retention{
		Ranges: []messages.RetentionRange{{End: 2, Priority: 100, Duration: 1_500_000_000}},
		Decode: &messages.DecodeRetention{Priority: 5},
	}, e.retention[0])
	assert.Contains(t, answers[2], "admit: field kv_cache_retention_config: unknown name ranges")
	assert.Contains(t, answers[3], "one option under two names")
}

// Two forks whose common pages are computed by one need not be written twice:
// the second commit launches no kernel.
func TestSharedRowsAreWrittenOnce(t *testing.T) {
	answers, e := talk(t, openLine4,
		`{"op":"admit","seq":"A","tokens":[1,2,3,4,5],"prefill":"manual"}`,
		`{"op":"commit","seq":"A","computed":5}`,
		`{"op":"append","steps":[{"seq":"A","tokens":[6,7,8]}]}`, `{"op":"fork","seq":"A","into":["B"]}`,
		`{"op":"commit","seq":"A","computed":8}`, `{"op":"commit","seq":"B","computed":8}`,
		`{"op":"verify"}`)
	assert.EqualValues(t, 2, e.memory.seq)
	verified(t, answers)
}
