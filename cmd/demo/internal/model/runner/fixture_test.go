package runner_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.(*EventStream).Subscribe"), goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewActorSystem"))
}

// decoders are the fixtures without recurrent layers and without an encoder;
// encoders those with one; recurrent those with states.
var (
	decoders = []string{
		"llama_gqa", "llama_mha", "llama_mqa", "mistral_swa", "gemma3_hybrid", "gpt_oss", "deepseek_v3_mla",
		"bloom_alibi", "gptj_rope", "gpt_neox_rope",
	}
	encoders  = []string{"t5_cross", "bart_cross"}
	recurrent = []string{"bamba_mamba2", "qwen3_next"}
)

// fixtureModel is a model of testdata with its prompts.
type fixtureModel struct {
	*model.Model
	Name  string
	Cases []struct {
		Name            string
		Tokens, Encoder []messages.Token
		Greedy          []messages.Token
	}
	Beams *struct {
		Width     int
		Prompt    string
		Steps     []struct{ Parents, Tokens []int }
		Sequences [][]messages.Token
	}
}

var loaded sync.Map // of fixtureModel by name: models are read only

// fixture loads a model of testdata once.
func fixture(t testing.TB, name string) *fixtureModel {
	t.Helper()
	if f, ok := loaded.Load(name); ok {
		return f.(*fixtureModel)
	}
	folder := filepath.Join("..", "testdata", name)
	m, _, err := model.Load(folder)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "fixture.json"))
	require.NoError(t, err)
	f := &fixtureModel{Model: m, Name: name}
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(text, []byte("Infinity"), []byte("1e300")), f))
	loaded.Store(name, f)
	return f
}

// open starts an engine for a model, under the checker of order, and closes it
// with the test: every page must be back then, and no access unordered.
func open(t testing.TB, f *fixtureModel, c runner.Config) *runner.Runner {
	t.Helper()
	c.Checked = true
	if c.MaxLen == 0 {
		c.MaxLen = min(f.MaxLen, 512)
	}
	r, err := runner.Open(f.Model, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.Empty(t, r.Hazards())
	})
	return r
}
