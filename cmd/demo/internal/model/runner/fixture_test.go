package runner_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.(*EventStream).Subscribe"),
		goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewActorSystem"))
}

// fixtures are the models of testdata: all of them, or TestFixtures fails. A test
// plays all unless it says which ones have what it is about.
var fixtures = []string{
	"llama_gqa", "llama_mha", "llama_mqa", "mistral_swa", "gemma3_hybrid", "gpt_oss",
	"deepseek_v3_mla",
	"bloom_alibi", "gptj_rope", "gpt_neox_rope", "t5_cross", "bart_cross", "bamba_mamba2",
	"qwen3_next",
}

// fixturesWith are those of which something is true.
func fixturesWith(t testing.TB, what func(*fixtureModel) bool) []string {
	t.Helper()
	var names []string
	for _, name := range fixtures {
		if what(fixture(t, name)) {
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// windowed tells whether a layer has a window.
func (f *fixtureModel) windowed() bool {
	_, limits := f.Geometry(f.MaxLen, windows.Float32)
	return slices.Min(limits) < f.MaxLen
}

// beams tells whether the engine serves beams of the model.
func (f *fixtureModel) beams() bool { return !f.Recurrent() }

// TestFixtures holds the list of models to the folder, so that no architecture is
// left out of the tests silently, and says which of them are left out of some.
func TestFixtures(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("..", "testdata", "*", "fixture.json"))
	require.NoError(t, err)
	var names []string
	for _, path := range folders {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	assert.ElementsMatch(t, names, fixtures)
	without := func(what func(*fixtureModel) bool) []string {
		with := fixturesWith(t, what)
		return slices.DeleteFunc(slices.Clone(fixtures),
			func(name string) bool { return slices.Contains(with, name) })
	}
	assert.Equal(t, []string{"bamba_mamba2", "qwen3_next"}, without((*fixtureModel).beams),
		"beams of states are refused")
	assert.Equal(t, []string{"mistral_swa", "gemma3_hybrid", "gpt_oss"},
		fixturesWith(t, (*fixtureModel).windowed))
	assert.Equal(t, []string{"gemma3_hybrid", "gpt_oss", "bamba_mamba2", "qwen3_next"},
		fixturesWith(t, (*fixtureModel).pooled))
}

// pooled tells whether a decoder has several pools.
func (f *fixtureModel) pooled() bool {
	g, limits := f.Geometry(f.MaxLen, windows.Float32)
	c := windows.DefaultConfig()
	c.MaxAttentionWindow = limits
	pools, err := windows.Pools(g, c)
	return err == nil && len(pools) > 1 && !f.Encodes()
}

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
