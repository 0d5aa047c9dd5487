package replay

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// tiny is the geometry of replays: real bytes, but few.
func tiny() windows.Model {
	return windows.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 2, DType: windows.FP8,
		MaxSeqLen: 1 << 25}
}

func config(path string, pages int) Config {
	return Config{
		Trace: path, Model: tiny(), Costs: cost.Llama8B(), Pages: pages, Policy: windows.PriorityLRU,
	}
}

// generate writes a trace of conversations that grow and branch, in blocks of 4
// tokens, and gives its path.
func generate(t *testing.T, requests int, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 1))
	var text strings.Builder
	fresh := 0
	prompts := [][]int{}
	for i := range requests {
		var prompt []int
		if len(prompts) > 0 && random.IntN(4) > 0 {
			old := prompts[random.IntN(len(prompts))]
			prompt = append(prompt, old[:random.IntN(len(old)+1)]...)
		}
		for range 1 + random.IntN(4) {
			prompt = append(prompt, fresh)
			fresh++
		}
		prompts = append(prompts, prompt)
		ids, err := json.Marshal(prompt)
		require.NoError(t, err)
		length := len(prompt)*4 - random.IntN(4)
		fmt.Fprintf(&text, `{"timestamp":%d,"input_length":%d,"output_length":%d,"hash_ids":%s}`+"\n",
			i*3, length, random.IntN(9), ids)
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// lru is the cache of the whiteboard: the hits of a trace with room for
// capacity blocks.
func lru(t *testing.T, path string, capacity int) (hits int64) {
	reader, err := trace.Open(path)
	require.NoError(t, err)
	defer reader.Close()
	order := list.New() // the least recently used in front
	at := map[int32]*list.Element{}
	for {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return hits
		}
		require.NoError(t, err)
		leading := true
		for _, block := range r.Blocks {
			if leading = leading && at[block] != nil; leading {
				hits++
			}
		}
		for i := len(r.Blocks) - 1; i >= 0; i-- { // the first block is used last
			if e := at[r.Blocks[i]]; e != nil {
				order.MoveToBack(e)
			} else {
				at[r.Blocks[i]] = order.PushBack(r.Blocks[i])
			}
		}
		for order.Len() > capacity {
			delete(at, order.Remove(order.Front()).(int32))
		}
	}
}

func TestAtomicIsLRU(t *testing.T) {
	for seed := range uint64(3) {
		path := generate(t, 150, seed)
		longest, distinct := shape(t, path)
		for _, capacity := range []int{longest, longest + 7, 3 * longest, distinct} {
			result, err := Atomic(t.Context(), config(path, capacity))
			require.NoError(t, err)
			assert.Equal(t, lru(t, path, capacity), result.Hits, "seed %d, %d blocks", seed, capacity)
			assert.Equal(t, 150, result.Requests)
			assert.Equal(t, result.Hits*int64(result.TokensPerBlock), result.ReusedTokens)
			stored := int64(min(capacity, distinct))
			assert.Equal(t, result.Hits+stored, result.Verified,
				"each reused page is checked once, all that is stored at the end")
			assert.Empty(t, result.Problems)
			assert.Zero(t, result.Refused)
			assert.Zero(t, result.LeakedPages)
		}
	}
}

// TestAtomicWithoutKernels: what the engine does is the same, and no byte is checked.
func TestAtomicWithoutKernels(t *testing.T) {
	path := generate(t, 150, 4)
	longest, _ := shape(t, path)
	c := config(path, 2*longest)
	with, err := Atomic(t.Context(), c)
	require.NoError(t, err)
	c.NoKernels = true
	without, err := Atomic(t.Context(), c)
	require.NoError(t, err)
	require.Positive(t, with.Verified)
	assert.Zero(t, without.Verified)
	assert.Zero(t, without.ComputeSeconds)
	assert.Empty(t, without.Problems)
	assert.Equal(t, with.Hits, without.Hits)
	assert.Equal(t, with.EvictedPages, without.EvictedPages)
	assert.Positive(t, without.EngineSeconds)
}

// shape gives the blocks of the longest prompt and of all prompts together.
func shape(t *testing.T, path string) (longest, distinct int) {
	reader, err := trace.Open(path)
	require.NoError(t, err)
	defer reader.Close()
	for {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return longest, reader.Distinct()
		}
		require.NoError(t, err)
		longest = max(longest, len(r.Blocks))
	}
}

// A prompt that is longer than the cache leaves its first blocks there.
func TestAtomicPromptsLongerThanTheCache(t *testing.T) {
	path := generate(t, 60, 9)
	longest, _ := shape(t, path)
	whole, err := Atomic(t.Context(), config(path, 2*longest))
	require.NoError(t, err)
	for _, capacity := range []int{1, longest / 2, longest - 1} {
		result, err := Atomic(t.Context(), config(path, capacity))
		require.NoError(t, err)
		assert.InEpsilon(t, whole.PrefillSeconds+whole.SavedSeconds,
			result.PrefillSeconds+result.SavedSeconds, 1e-6,
			"what is not reused is computed")
		assert.Equal(t, lru(t, path, capacity), result.Hits, "%d blocks", capacity)
		assert.Equal(t, 60, result.Requests)
		assert.Zero(t, result.Refused)
		assert.Empty(t, result.Problems)
	}
}

// TestInterrupted: a replay whose context ends has the result of the requests before.
func TestInterrupted(t *testing.T) {
	for _, play := range []func(context.Context, Config) (*Result, error){Atomic, Timed} {
		ctx, cancel := context.WithCancel(t.Context())
		c := config(generate(t, 60, 9), 1000)
		c.Progress = func(r *Result) {
			if r.Requests == 5 {
				cancel()
			}
		}
		r, err := play(ctx, c)
		require.ErrorIs(t, err, context.Canceled)
		assert.GreaterOrEqual(t, r.Requests, 5)
		assert.Less(t, r.Requests, 60)
		assert.Positive(t, r.PromptTokens)
		assert.Empty(t, r.Problems)
	}
}

func TestAtomicInOtherBlocks(t *testing.T) {
	path := generate(t, 80, 4)
	for _, size := range []int{2, 8} {
		c := config(path, 10000)
		c.TokensPerBlock = size
		result, err := Atomic(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, size, result.TokensPerBlock)
		assert.Positive(t, result.Hits)
		assert.Empty(t, result.Problems)
		if size == 2 {
			assert.Equal(t, 2*lru(t, path, 10000), result.Hits)
		}
	}
}

func TestTimedWithRoomHitsEverythingEarlier(t *testing.T) {
	path := generate(t, 200, 2)
	result, err := Timed(t.Context(), config(path, 20000))
	require.NoError(t, err)
	assert.Equal(t, 200, result.Requests)
	assert.Positive(t, result.Hits)
	assert.LessOrEqual(t, result.Hits, lru(t, path, 20000))
	assert.Empty(t, result.Problems)
	assert.Zero(t, result.Refused)
	assert.Zero(t, result.EvictedPages)
	assert.Positive(t, result.AnswerTokens)
	assert.Positive(t, result.SavedSeconds)
	assert.True(t,
		slices.ContainsFunc(result.Calls, func(c Calls) bool {
			return c.Call == "append" && c.Calls > 0
		}))
	assert.InDelta(t, float64(result.Hits)/float64(result.Blocks), result.HitRate, 1e-9)
}

func TestTimedUnderPressureServesAll(t *testing.T) {
	path := generate(t, 200, 3)
	longest, _ := shape(t, path)
	result, err := Timed(t.Context(), config(path, longest+12))
	require.NoError(t, err)
	assert.Equal(t, 200, result.Requests)
	assert.Zero(t, result.Refused)
	assert.Positive(t, result.Retries)
	assert.Positive(t, result.EvictedPages)
	assert.Empty(t, result.Problems)
	assert.Zero(t, result.LeakedPages)
}

func TestTimedGivesUpOnlyWhatCannotFit(t *testing.T) {
	path := generate(t, 120, 5)
	longest, _ := shape(t, path)
	result, err := Timed(t.Context(), config(path, longest-2))
	require.NoError(t, err)
	assert.Equal(t, 120, result.Requests)
	assert.Positive(t, result.Refused)
	assert.Less(t, result.Refused, 120)
	assert.Empty(t, result.Problems)
}

// A pool that gives out pages with the wrong contents does not go unnoticed.
func TestTimedNoticesWrongPages(t *testing.T) {
	s, err := open(config(generate(t, 100, 6), 2000), ModeTimed, 0)
	require.NoError(t, err)
	s.rig.Engine = swapped{s.rig.Engine}
	result, err := s.serve(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, result.Problems)
	assert.Contains(t, result.Problems[0], "wrong bytes")
}

// swapped answers page tables with their first two pages exchanged.
type swapped struct{ engine.Engine }

func (e swapped) AdmitBatch(
	ctx context.Context, r []messages.AdmitRequest,
) ([]messages.Admitted, error) {
	out, err := e.Engine.AdmitBatch(ctx, r)
	for i := range out {
		if out[i].ReusedTokens > 0 && len(out[i].Tables[0][0]) > 1 {
			table := out[i].Tables[0][0]
			table[0], table[1] = table[1], table[0]
		}
	}
	return out, err
}

func TestLimit(t *testing.T) {
	path := generate(t, 50, 7)
	for _, run := range []func(context.Context, Config) (*Result, error){Atomic, Timed} {
		c := config(path, 1000)
		c.Limit = 20
		seen := 0
		c.Progress = func(*Result) { seen++ }
		result, err := run(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, 20, result.Requests)
		assert.Equal(t, 20, seen)
	}
}

func TestBadInputEndsInAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	text := `{"timestamp":0,"input_length":8,"output_length":2,"hash_ids":[1,2]}` + "\nnonsense\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, run := range []func(context.Context, Config) (*Result, error){Atomic, Timed} {
		_, err := run(t.Context(), config(path, 10))
		require.ErrorContains(t, err, "bad.jsonl:2: no JSON")
		c := config(generate(t, 3, 1), 10)
		c.Policy = "random"
		_, err = run(t.Context(), c)
		require.ErrorContains(t, err, "random")
		c = config(generate(t, 3, 1), 10)
		c.TokensPerBlock = 24
		_, err = run(t.Context(), c)
		require.ErrorContains(t, err, "24 is not a power of two")
		c = config(generate(t, 3, 1), MaxPages)
		c.TokensPerBlock = 1 << 20
		_, err = run(t.Context(), c)
		require.ErrorContains(t, err, "GiB")
	}
}

// The names that the command promises, and a list where there is nothing to say.
func TestResultJSON(t *testing.T) {
	result, err := Atomic(t.Context(), config(generate(t, 5, 8), 100))
	require.NoError(t, err)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range []string{
		"requests", "blocks", "hit_blocks", "hit_rate", "prompt_tokens", "reused_tokens", "evicted_pages",
		"offloaded_pages", "onboarded_pages", "bytes_offloaded", "bytes_onboarded", "refused_requests",
		"verified_pages", "problems", "engine_seconds", "seconds",
	} {
		assert.Contains(t, fields, name)
	}
	assert.Equal(t, []any{}, fields["problems"])
}

func TestTokensOfBlocks(t *testing.T) {
	a, b := appendBlock(nil, 5, 8), appendBlock(nil, 6, 8)
	assert.NotEqual(t, a[0], b[0])
	assert.Equal(t, a, appendBlock(nil, 5, 8))
	assert.Equal(t, a[:3], appendBlock(nil, 5, 3))
	for i := range 1000 {
		for _, token := range append(appendBlock(nil, int32(i), 9), private(i, 0), private(i, 1)) {
			assert.GreaterOrEqual(t, token, messages.Token(0))
		}
	}
	assert.NotEqual(t, private(1, 0), private(2, 0))
}
