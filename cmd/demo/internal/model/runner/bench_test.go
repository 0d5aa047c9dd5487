package runner_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/builtin"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// BenchmarkDecodeStep measures the engine's part of a decode step of eight sequences:
// the calls that append a token to each and commit it, of the time of the whole step.
func BenchmarkDecodeStep(b *testing.B) {
	tiny, _, err := builtin.Load()
	require.NoError(b, err)
	models := map[string]*model.Model{"tiny": tiny, "bamba_mamba2": fixture(b, "bamba_mamba2").Model}
	if path, err := model.SmolLM2.Find(); err == nil && !testing.Short() {
		models["smollm2"], _, err = model.Load(path)
		require.NoError(b, err)
	}
	for name, m := range models {
		b.Run(name, func(b *testing.B) { benchDecode(b, m) })
	}
}

const decoding = 8 // sequences

func benchDecode(b *testing.B, m *model.Model) {
	b.Helper()
	const block = 16
	longest := min(m.MaxLen, 1024)
	r, err := runner.Open(m, runner.Config{TokensPerBlock: block, MaxLen: longest,
		Pages: decoding * (longest/block + 2), HostPages: 256})
	require.NoError(b, err)
	batch := make([]*runner.Sequence, decoding)
	admit := func(i int) {
		tokens := make([]messages.Token, 32)
		for t := range tokens {
			tokens[t] = messages.Token((31*i + 7*t) % m.Vocab)
		}
		batch[i], err = r.Admit(b.Context(), runner.Request{Tokens: tokens})
		require.NoError(b, err)
		require.NoError(b, r.Prefill(b.Context(), batch[i]))
	}
	for i := range batch {
		admit(i)
	}
	var engine, all []time.Duration
	for b.Loop() {
		for i, s := range batch {
			if len(s.Tokens) == r.Config.MaxLen {
				require.NoError(b, r.Release(b.Context(), s))
				admit(i)
			}
		}
		in, step := decode(b, r, batch)
		engine, all = append(engine, in), append(all, step)
	}
	slices.Sort(engine)
	slices.Sort(all)
	in, step := engine[len(engine)/2], all[len(all)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(in.Nanoseconds()), "engine-ns")
	b.ReportMetric(float64(step.Nanoseconds()), "step-ns")
	b.ReportMetric(100*float64(in)/float64(step), "engine-%")
	require.NoError(b, r.Release(b.Context(), batch...))
	require.NoError(b, r.Close())
}

// decode is one step: it gives the time in the engine, and the time of all.
func decode(b *testing.B, r *runner.Runner, batch []*runner.Sequence) (engine, step time.Duration) {
	tokens, upTo := make([][]messages.Token, len(batch)), make([]int, len(batch))
	for i, s := range batch {
		tokens[i], upTo[i] = []messages.Token{s.Next()}, len(s.Tokens)+1
	}
	start := time.Now()
	errs, err := r.Append(b.Context(), batch, tokens)
	appended := time.Now()
	require.NoError(b, errors.Join(append(errs, err)...))
	computing := time.Now()
	require.NoError(b, r.ComputeOnly(b.Context(), batch...))
	computed := time.Now()
	errs, err = r.Commit(b.Context(), batch, upTo)
	end := time.Now()
	require.NoError(b, errors.Join(append(errs, err)...))
	engine = appended.Sub(start) + end.Sub(computed)
	return engine, engine + computed.Sub(computing)
}
