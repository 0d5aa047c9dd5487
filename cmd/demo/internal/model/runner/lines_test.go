package runner_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// answer is a line that Lines writes.
type answer struct {
	Greedy    []messages.Token
	Logits    [][]float32
	First     int `json:"first_logits_position"`
	Cached    int `json:"cached_tokens"`
	Onboarded int `json:"onboarded_pages"`
	Error     *struct{ Code, Message string }
}

// ask runs lines through a model on a new engine.
func ask(t *testing.T, name string, c runner.Config, lines ...string) []answer {
	t.Helper()
	r := open(t, fixture(t, name), c)
	var out strings.Builder
	require.NoError(t, r.Lines(context.Background(), strings.NewReader(strings.Join(lines, "\n")),
		&out))
	var all []answer
	for text := range strings.Lines(out.String()) {
		var a answer
		require.NoError(t, json.Unmarshal([]byte(text), &a), text)
		all = append(all, a)
	}
	return all
}

func TestLinesAnswerRequests(t *testing.T) {
	f := fixture(t, "llama_gqa")
	c := f.Cases[2]
	request, err := json.Marshal(map[string]any{"tokens": c.Tokens, "new": len(c.Greedy),
		"logits": true})
	require.NoError(t, err)
	all := ask(t, "llama_gqa", runner.Config{TokensPerBlock: 4}, string(request), "", "# a comment",
		string(request),
		`{"tokens":[1,2],"new":3}`, `{"tokens":[1,2],"logits":true}`)
	require.Len(t, all, 4)
	assert.Equal(t, c.Greedy, all[0].Greedy)
	assert.Equal(t, c.Greedy, all[1].Greedy)
	assert.Zero(t, all[0].Cached)
	assert.Equal(t, len(c.Tokens)-1, all[1].Cached)
	assert.Len(t, all[0].Logits, len(c.Tokens)+len(c.Greedy),
		"a row for each token of the prompt and each new one")
	assert.Equal(t, all[0].Logits[all[1].First:], all[1].Logits)
	assert.Len(t, all[2].Greedy, 3)
	assert.Nil(t, all[2].Logits)
	assert.Empty(t, all[3].Greedy)
	assert.Len(t, all[3].Logits, 2-all[3].First, "what is cached has no logits")
	assert.Equal(t, 1, all[3].First)
}

func TestLinesRefuse(t *testing.T) {
	for _, c := range []struct{ line, code, message string }{
		{`{"tokens":[]}`, "bad_request", "tokens: empty"},
		{`{}`, "bad_request", "tokens: empty"},
		{`{"tokens":[1],"temperature":1}`, "bad_request", `json: unknown field "temperature"`},
		{`{"tokens":[1]} {}`, "bad_request", "more than one value in a line"},
		{`nonsense`, "bad_request", "invalid character"},
		{`{"tokens":"a"}`, "bad_request", "json: cannot unmarshal"},
		{`{"tokens":[1,128]}`, "bad_request", "tokens: token 1 is 128, the vocabulary has 128"},
		{`{"tokens":[-1]}`, "bad_request", "tokens: token 0 is -1"},
		{`{"tokens":[1],"new":-1}`, "bad_request", "new: -1 is negative"},
		{`{"tokens":[1],"encoder":[2]}`, "bad_request", "encoder: the model has none"},
		{`{"tokens":[1],"new":512}`, "too_long",
			"1 tokens and 512 new ones, the longest sequence has 512"},
		{`{"tokens":[1],"new":100}`, "out_of_pages",
			"pool wfullh2 needs 1 pages beside the 10 held, and has 10"},
	} {
		all := ask(t, "llama_gqa", runner.Config{TokensPerBlock: 4, Pages: 10}, c.line,
			`{"tokens":[1],"new":1}`)
		require.Len(t, all, 2, c.line)
		require.NotNil(t, all[0].Error, c.line)
		assert.Equal(t, c.code, all[0].Error.Code, c.line)
		assert.Contains(t, all[0].Error.Message, c.message, c.line)
		assert.Nil(t, all[1].Error, "the next request is served")
	}
	all := ask(t, "t5_cross", runner.Config{}, `{"tokens":[1]}`, `{"tokens":[1],"encoder":[500]}`)
	assert.Equal(t, "encoder: missing, the model has one", all[0].Error.Message)
	assert.Contains(t, all[1].Error.Message, "encoder: token 0 is 500")
}

// Numbers read back to the same bits, through float32 and float64.
func TestNumbersReadBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, math.MaxFloat32,
		math.SmallestNonzeroFloat32, 1e-40, 0.1}
	for range 10000 {
		if y := math.Float32frombits(rng.Uint32()); y == y && !math.IsInf(float64(y), 0) {
			x = append(x, y)
		}
	}
	text, err := json.Marshal(runner.Row(x))
	require.NoError(t, err)
	var narrow []float32
	require.NoError(t, json.Unmarshal(text, &narrow))
	var wide []float64
	require.NoError(t, json.Unmarshal(text, &wide))
	for i := range x {
		require.Equal(t, math.Float32bits(x[i]), math.Float32bits(narrow[i]))
		require.Equal(t, math.Float32bits(x[i]), math.Float32bits(float32(wide[i])))
	}
}
