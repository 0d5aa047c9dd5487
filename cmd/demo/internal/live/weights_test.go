package live_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// answers plays a script on an engine and returns its answers.
func answers(t *testing.T, lines string) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, script.Run(strings.NewReader(lines), &out, live.Open))
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// What was computed by other weights is found in no tier and no store, and what ran when they
// changed stores nothing; the weights that come back find what a store has of them.
func TestWeights(t *testing.T) {
	got := answers(t, `
{"op":"open","model":{"layers":2,"kv_heads":1,"head_dim":4},"cache":{"tokens_per_block":4,"event_buffer_max_size":100},"pages":{"primary":16,"secondary":8},"store":{"name":"s","save":"commit"},"weights":"v1"}
{"op":"admit","seq":"A","tokens":{"from":0,"count":13}}
{"op":"flush"}
{"op":"weights","epoch":"v2"}
{"op":"append","steps":[{"seq":"A","tokens":[7,8,9,10,11]}]}
{"op":"lookup","tokens":{"from":0,"count":13}}
{"op":"fetch","tokens":{"from":0,"count":13}}
{"op":"admit","seq":"B","tokens":{"from":0,"count":13}}
{"op":"release","seq":"A"}
{"op":"lookup","tokens":{"from":0,"count":20}}
{"op":"verify"}
{"op":"flush"}
{"op":"weights","epoch":"v1"}
{"op":"lookup","tokens":{"from":0,"count":13}}
{"op":"fetch","tokens":{"from":0,"count":13}}
{"op":"admit","seq":"C","tokens":{"from":0,"count":13}}
{"op":"verify"}
{"op":"close"}
`)
	for i, want := range map[int]string{
		2:  `"saved_objects":3`,
		5:  `"matched_tokens":0`,
		6:  `"fetched_blocks":0`,
		7:  `"reused_tokens":0`,
		9:  `"matched_tokens":12`,
		11: `"saved_objects":3`,
		13: `"matched_tokens":0`,
		14: `"fetched_blocks":3,"local_tokens":12`,
		15: `"reused_tokens":12`,
		16: `"problems":[]`,
	} {
		assert.Contains(t, got[i], want, "answer %d", i)
	}
}

// A reset of what runs leaves nothing to match, and nothing that runs is stored from then on.
func TestResetOfWhatRuns(t *testing.T) {
	got := answers(t, `
{"op":"open","model":{"layers":2,"kv_heads":2,"head_dim":8},"cache":{"tokens_per_block":4,"event_buffer_max_size":99},"pages":{"primary":32}}
{"op":"admit","seq":"A","tokens":{"from":1,"count":17}}
{"op":"events"}
{"op":"reset","running":true}
{"op":"events"}
{"op":"lookup","tokens":{"from":1,"count":18}}
{"op":"append","steps":[{"seq":"A","tokens":[50,51,52,53,54]}]}
{"op":"release","seq":"A"}
{"op":"lookup","tokens":{"from":1,"count":18}}
{"op":"verify"}
{"op":"stats"}
`)
	assert.Contains(t, got[4], `"type":"removed"`)
	assert.Contains(t, got[4], `"type":"cleared"`)
	assert.Contains(t, got[5], `"matched_tokens":0`)
	assert.Contains(t, got[8], `"matched_tokens":0`)
	assert.Contains(t, got[9], `"problems":[]`)
	assert.Contains(t, got[10], `"used":0,"cached":0,"free":32`)
}

// An adapter is forgotten under every salt, or under one.
func TestInvalidateByAdapter(t *testing.T) {
	got := answers(t, `
{"op":"open","model":{"layers":1,"kv_heads":1,"head_dim":8},"cache":{"tokens_per_block":4},"pages":{"primary":64}}
{"op":"admit","seq":"A","tokens":{"from":0,"count":9},"lora":"x"}
{"op":"admit","seq":"B","tokens":{"from":0,"count":9},"lora":"x","salt":"s"}
{"op":"admit","seq":"C","tokens":{"from":0,"count":9},"lora":"y","salt":"s"}
{"op":"admit","seq":"D","tokens":{"from":0,"count":9}}
{"op":"invalidate","lora":"x","salt":"s"}
{"op":"lookup","tokens":{"from":0,"count":9},"lora":"x","salt":"s"}
{"op":"lookup","tokens":{"from":0,"count":9},"lora":"x"}
{"op":"invalidate","lora":"x"}
{"op":"lookup","tokens":{"from":0,"count":9},"lora":"x"}
{"op":"lookup","tokens":{"from":0,"count":9},"lora":"y","salt":"s"}
{"op":"invalidate","lora":"y","session":"z"}
{"op":"release","seq":"A"}
{"op":"lookup","tokens":{"from":0,"count":9},"lora":"x"}
`)
	assert.Contains(t, got[5], `"blocks":2`)
	assert.Contains(t, got[6], `"matched_tokens":0`)
	assert.Contains(t, got[7], `"matched_tokens":8`)
	assert.Contains(t, got[8], `"blocks":2`)
	assert.Contains(t, got[9], `"matched_tokens":0`)
	assert.Contains(t, got[10], `"matched_tokens":8`)
	assert.Contains(t, got[11], `"bad_request"`)
	assert.Contains(t, got[13], `"matched_tokens":0`, "it was named, and stores nothing")
}
