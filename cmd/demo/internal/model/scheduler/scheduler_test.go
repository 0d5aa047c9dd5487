package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
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

// fixture is a model of the fixtures and its prompts.
type fixture struct {
	*model.Model
	prompts [][]messages.Token
}

func load(t testing.TB, name string) *fixture {
	t.Helper()
	folder := filepath.Join("..", "testdata", name)
	m, _, err := model.Load(folder)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "fixture.json"))
	require.NoError(t, err)
	var cases struct {
		Cases []struct{ Tokens []messages.Token }
	}
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(text, []byte("Infinity"), []byte("1e300")),
		&cases))
	f := &fixture{Model: m}
	for _, c := range cases.Cases {
		f.prompts = append(f.prompts, c.Tokens)
	}
	return f
}

func open(t testing.TB, f *fixture, c runner.Config) *runner.Runner {
	t.Helper()
	c.Workers, c.Checked = 1, true
	c.MaxLen = min(f.MaxLen, 256)
	r, err := runner.Open(f.Model, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.Empty(t, r.Hazards())
	})
	return r
}

// start runs a scheduler until the test ends.
func start(t *testing.T, r *runner.Runner, c Config) *Scheduler {
	t.Helper()
	s, err := New(r, c)
	require.NoError(t, err)
	run(t, s)
	return s
}

func run(t *testing.T, s *Scheduler) {
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-ended)
		assert.Zero(t, s.load)
	})
}

// record is a sink that keeps everything.
type record struct {
	sync.Mutex
	tokens  [][]messages.Token
	reasons []Reason
	errs    []error
	started int
	prompt  [][]float32 // logits
	reuse   Reuse
	most    int // tokens of a choice until Token gives false; 0: no end
	open    sync.WaitGroup
	first   chan struct{} // closed by the first token
}

func newRecord(choices int) *record {
	r := &record{
		tokens: make([][]messages.Token, choices), reasons: make([]Reason, choices),
		errs: make([]error, choices), first: make(chan struct{}),
	}
	r.open.Add(choices)
	return r
}

func (r *record) Started(u Reuse) {
	r.started++
	r.reuse = u
}

func (r *record) Prompt(at int, logits [][]float32) {
	r.prompt = append(r.prompt[:at], logits...)
}

func (r *record) Token(choice int, t Sampled) bool {
	r.Lock()
	defer r.Unlock()
	if len(r.tokens[choice]) == 0 && choice == 0 {
		close(r.first)
	}
	r.tokens[choice] = append(r.tokens[choice], t.Token)
	return r.most == 0 || len(r.tokens[choice]) < r.most
}

func (r *record) Ended(choice int, reason Reason, err error) {
	r.reasons[choice], r.errs[choice] = reason, err
	r.open.Done()
}

// alone generates the choices of a request one after the other, without reuse, a
// scheduler or drafts.
func alone(t *testing.T, r *runner.Runner, q Request) [][]messages.Token {
	t.Helper()
	out := make([][]messages.Token, q.Choices)
	for choice := range out {
		s, err := r.Admit(t.Context(), runner.Request{Tokens: q.Tokens, Salt: q.Salt})
		require.NoError(t, err)
		require.Zero(t, s.Reused)
		require.NoError(t, r.Prefill(t.Context(), s))
		rng := q.Sampling.source(choice)
		for len(out[choice]) < q.New {
			before := past{prompt: q.Tokens, generated: out[choice]}
			if len(out[choice]) < q.MinNew {
				before.banned = q.Stops
			}
			next := q.Sampling.sample(s.Logits[len(s.Logits)-1], rng, before)
			out[choice] = append(out[choice], next)
			if q.Stops[next] {
				break
			}
			require.NoError(t, r.Extend(t.Context(), s, next))
		}
		require.NoError(t, r.Release(t.Context(), s))
	}
	return out
}

// draw is a random request: the beginning of a prompt, perhaps with another end.
func (f *fixture) draw(rng *rand.Rand) Request {
	p := f.prompts[rng.IntN(len(f.prompts))]
	q := Request{Tokens: slices.Clone(p[:1+rng.IntN(len(p))]), New: 1 + rng.IntN(30),
		Choices: 1 + rng.IntN(3)/2*rng.IntN(3)}
	q.Choices = max(q.Choices, 1)
	if rng.IntN(3) == 0 {
		q.Tokens = append(q.Tokens, messages.Token(rng.IntN(f.Vocab)))
	}
	if rng.IntN(2) == 0 {
		q.Sampling = Sampling{Temperature: 0.2 + rng.Float64(), TopP: rng.Float64(), Seed: rng.Uint64()}
	}
	switch rng.IntN(6) {
	case 0:
		q.Sampling.RepetitionPenalty, q.Sampling.FrequencyPenalty, q.Sampling.PresencePenalty = 1.4, 0.5,
			-0.2
	case 1:
		q.Sampling.TopK, q.Sampling.MinP = 1+rng.IntN(9), 0.02
	case 2:
		q.Sampling.Bias = map[messages.Token]float64{messages.Token(rng.IntN(f.Vocab)): 5}
	}
	q.PromptLogits = rng.IntN(5) == 0
	if rng.IntN(4) == 0 {
		q.Salt = "tenant"
	}
	if rng.IntN(4) == 0 {
		q.Stops = map[messages.Token]bool{messages.Token(rng.IntN(f.Vocab)): true,
			messages.Token(rng.IntN(f.Vocab)): true}
		q.MinNew = rng.IntN(9)
	}
	return q
}

// Whatever runs beside a request, its tokens are those of the request alone: with
// batches, chunks, drafts, forks, preemptions, offloading, and actors that fail.
func TestSameTokensAsAlone(t *testing.T) {
	names := []string{
		"gemma3_hybrid", "bamba_mamba2", "llama_gqa", "llama_mha", "llama_mqa", "mistral_swa", "gpt_oss",
		"deepseek_v3_mla",
		"bloom_alibi", "gptj_rope", "gpt_neox_rope", "qwen3_next",
	}
	if testing.Short() {
		names = names[:2]
	}
	var disturbed, accepted int64
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			f := load(t, name)
			reference := open(t, f, runner.Config{NoReuse: true})
			points := &enginetest.Failpoints{}
			// Twelve pages of eight tokens are few for eight sequences of up to eighty.
			r := open(t, f, runner.Config{
				TokensPerBlock: 8, Chunk: 8, Pages: 12, HostPages: 30, Seed: int64(i),
				Options: []actors.Option{actors.WithRestartLimit(1000, 1), enginetest.WithFailpoints(points)},
			})
			s, err := New(r, Config{Running: 8, StepTokens: 24, Draft: 4, Waiting: 1000})
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var requests []Request
			var records []*record
			submit := func(n int) {
				for range n {
					q := f.draw(rng)
					a := newRecord(q.Choices)
					q.Sink = a
					require.NoError(t, s.Submit(t.Context(), q))
					requests, records = append(requests, q), append(records, a)
				}
			}
			submit(30) // there is a crowd from the beginning
			run(t, s)
			for n := range 3 {
				records[8*n].open.Wait()
				require.NoError(t, points.Arm([]string{"tree", "coordinator", "offloader"}[n]))
				submit(4)
			}
			for n, a := range records {
				a.open.Wait()
				for choice, want := range alone(t, reference, requests[n]) {
					require.NoError(t, a.errs[choice])
					require.Equal(t, want, a.tokens[choice], "request %d, choice %d", n, choice)
				}
				assert.Equal(t, 1, a.started)
			}
			c := s.Counters()
			assert.Greater(t, c.LargestBatch, 1)
			assert.Positive(t, c.ReusedTokens)
			assert.Positive(t, c.DraftedTokens)
			disturbed += c.Preemptions + c.Retries
			accepted += c.AcceptedTokens
			require.NoError(t, r.Engine.Check(t.Context()))
		})
	}
	assert.Positive(t, disturbed)
	assert.Positive(t, accepted)
}

// Choices of one request share its prompt: it is computed once.
func TestChoicesComputeThePromptOnce(t *testing.T) {
	f := load(t, "llama_gqa")
	s := start(t, open(t, f, runner.Config{TokensPerBlock: 4}), Config{})
	a := newRecord(4)
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: f.prompts[0], New: 5, Choices: 4,
			Sampling: Sampling{Temperature: 5, Seed: 1}, Sink: a}))
	a.open.Wait()
	assert.Equal(t, int64(1), s.Counters().Prompts)
	assert.NotEqual(t, a.tokens[0], a.tokens[1])
	for choice, tokens := range a.tokens {
		assert.Len(t, tokens, 5)
		assert.Equal(t, Length, a.reasons[choice])
	}
}

// The logits of a prompt are those of the model, whatever is cached, and nothing of the
// request stays in the cache.
func TestPromptLogits(t *testing.T) {
	for _, name := range []string{"llama_gqa", "bamba_mamba2"} {
		f := load(t, name)
		reference := open(t, f, runner.Config{NoReuse: true})
		s := start(t, open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4}), Config{Draft: 3})
		prompt := slices.MaxFunc(f.prompts, func(a, b []messages.Token) int { return len(a) - len(b) })
		require.Greater(t, len(prompt), 8)
		alone, err := reference.Admit(t.Context(), runner.Request{Tokens: prompt})
		require.NoError(t, err)
		alone.AllLogits = true
		require.NoError(t, reference.Prefill(t.Context(), alone))
		ask := func(logits bool) *record {
			a := newRecord(2)
			require.NoError(t,
				s.Submit(t.Context(), Request{Tokens: prompt, New: 4, Choices: 2, PromptLogits: logits,
					Sink: a}))
			a.open.Wait()
			return a
		}
		for _, logits := range []bool{true, false, true, false} {
			a := ask(logits)
			if logits {
				assert.Equal(t, alone.Logits[:len(prompt)-1], a.prompt, name)
				assert.Zero(t, a.reuse.Tokens)
			} else {
				assert.Nil(t, a.prompt)
			}
			assert.Equal(t, a.tokens[0], a.tokens[1])
			assert.Len(t, a.tokens[0], 4)
		}
		require.NoError(t, reference.Release(t.Context(), alone))
	}
}

// Choices that find no page for a state of their own wait, and compute the prompt
// themselves.
func TestChoicesWithoutPages(t *testing.T) {
	f := load(t, "bamba_mamba2")
	reference := open(t, f, runner.Config{NoReuse: true})
	s := start(t, open(t, f, runner.Config{TokensPerBlock: 4, States: windows.PageCounts{Primary: 2}}),
		Config{})
	q := Request{Tokens: f.prompts[0], New: 5, Choices: 4, Sampling: Sampling{Temperature: 5, Seed: 1}}
	a := newRecord(4)
	q.Sink = a
	require.NoError(t, s.Submit(t.Context(), q))
	a.open.Wait()
	for choice, want := range alone(t, reference, q) {
		require.NoError(t, a.errs[choice])
		assert.Equal(t, want, a.tokens[choice])
	}
	assert.Equal(t, int64(1), s.Counters().Prompts)
	assert.Positive(t, s.Counters().Readmissions)
}

func TestCancel(t *testing.T) {
	f := load(t, "llama_gqa")
	s := start(t, open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4}), Config{Running: 2})
	ctx, cancel := context.WithCancel(t.Context())
	running, waiting := newRecord(2), newRecord(1)
	require.NoError(t,
		s.Submit(ctx, Request{Tokens: make([]messages.Token, 9), New: 200, Choices: 2, Sink: running}))
	require.NoError(t,
		s.Submit(ctx, Request{Tokens: make([]messages.Token, 9), New: 200, Sink: waiting}))
	<-running.first
	cancel()
	running.open.Wait()
	waiting.open.Wait()
	assert.Equal(t, []Reason{Cancelled, Cancelled, Cancelled},
		append(running.reasons, waiting.reasons...))
	assert.ErrorIs(t, waiting.errs[0], context.Canceled)
	assert.Less(t, len(running.tokens[0]), 200)
}

// A sink that has enough ends its choice, and only that one.
func TestSinkEndsAChoice(t *testing.T) {
	f := load(t, "llama_gqa")
	s := start(t, open(t, f, runner.Config{TokensPerBlock: 4}), Config{Draft: 5})
	a := newRecord(1)
	a.most = 3
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: make([]messages.Token, 9), New: 20, Sink: a}))
	a.open.Wait()
	assert.Len(t, a.tokens[0], 3)
	assert.Equal(t, Stopped, a.reasons[0])
}

func TestRefusals(t *testing.T) {
	f := load(t, "llama_gqa")
	r := open(t, f, runner.Config{TokensPerBlock: 4, Pages: 8})
	s, err := New(r, Config{Running: 2, Waiting: 1})
	require.NoError(t, err)
	sink := newRecord(100)
	for name, c := range map[string]struct {
		q    Request
		want error
	}{
		"empty":   {Request{New: 1}, messages.ErrBadRequest},
		"new":     {Request{Tokens: []messages.Token{1}}, messages.ErrBadRequest},
		"token":   {Request{Tokens: []messages.Token{9999}, New: 1}, messages.ErrBadRequest},
		"long":    {Request{Tokens: make([]messages.Token, 256), New: 1}, messages.ErrTooLong},
		"choices": {Request{Tokens: []messages.Token{1}, New: 1, Choices: 3}, messages.ErrBadRequest},
	} {
		c.q.Sink = sink
		assert.ErrorIs(t, s.Submit(t.Context(), c.q), c.want, name)
	}
	long := newRecord(1)
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: make([]messages.Token, 40), New: 1, Sink: long}))
	growing := newRecord(1)
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: make([]messages.Token, 4), New: 100, Sink: growing}))
	last := newRecord(1)
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: make([]messages.Token, 4), New: 1, Sink: last}))
	require.ErrorIs(t, s.Submit(t.Context(), Request{Tokens: []messages.Token{1}, New: 1, Sink: sink}),
		ErrFull)
	s.Stop()
	require.ErrorIs(t, s.Submit(t.Context(), Request{Tokens: []messages.Token{1}, New: 1, Sink: sink}),
		ErrStopping)
	require.NoError(t, s.Run(t.Context()))
	assert.ErrorIs(t, long.errs[0], messages.ErrOutOfPages)
	assert.ErrorIs(t, growing.errs[0], messages.ErrOutOfPages)
	assert.Greater(t, len(growing.tokens[0]), 20)
	assert.NoError(t, last.errs[0])
	assert.Len(t, last.tokens[0], 1)

	_, err = New(r, Config{Draft: -1})
	require.ErrorContains(t, err, "negative")
	_, err = New(&runner.Runner{Model: load(t, "t5_cross").Model}, Config{})
	require.ErrorContains(t, err, "encoder")
}

// A context that ends cancels everything; so does an engine that has closed.
func TestRunEnds(t *testing.T) {
	f := load(t, "llama_gqa")
	r := open(t, f, runner.Config{TokensPerBlock: 4})
	s, err := New(r, Config{})
	require.NoError(t, err)
	a := newRecord(3)
	require.NoError(t,
		s.Submit(t.Context(), Request{Tokens: f.prompts[0], New: 200, Choices: 3, Sink: a}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Run(ctx))
	a.open.Wait()
	assert.Equal(t, []Reason{Cancelled, Cancelled, Cancelled}, a.reasons)
	assert.Zero(t, s.load)

	_, err = r.Engine.Close(t.Context())
	require.NoError(t, err)
	s, err = New(r, Config{})
	require.NoError(t, err)
	a = newRecord(1)
	require.NoError(t, s.Submit(t.Context(), Request{Tokens: f.prompts[0], New: 2, Sink: a}))
	require.ErrorIs(t, s.Run(t.Context()), messages.ErrClosed)
	a.open.Wait()
	assert.Equal(t, Failed, a.reasons[0])
	assert.ErrorIs(t, a.errs[0], messages.ErrClosed)
}
