package runner_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// reference answers what a sequence's logits are when it runs alone, in one pass,
// without reuse and with all pages: the bits that everything else must have.
type reference struct {
	f     *fixtureModel
	r     *runner.Runner
	known map[string][][]float32
}

func newReference(t testing.TB, f *fixtureModel, c runner.Config) *reference {
	t.Helper()
	return &reference{f: f, known: map[string][][]float32{},
		r: open(t, f, runner.Config{NoReuse: true, TokensPerBlock: 16, DType: c.DType, MaxLen: c.MaxLen})}
}

// logits are those of all positions.
func (a *reference) logits(t testing.TB, q runner.Request) [][]float32 {
	t.Helper()
	key := fmt.Sprint(q.Tokens, q.Encoder)
	if rows, ok := a.known[key]; ok {
		return rows
	}
	q.Beams = 0
	s, err := a.r.Admit(t.Context(), q)
	require.NoError(t, err)
	require.Zero(t, s.Reused)
	s.AllLogits = true
	require.NoError(t, a.r.Prefill(t.Context(), s))
	a.known[key] = s.Logits
	require.NoError(t, a.r.Release(t.Context(), s))
	return a.known[key]
}

// compare compares rows of logits, from a position on, with those of a sequence
// that runs alone.
func (a *reference) compare(
	t testing.TB, q runner.Request, from int, rows [][]float32, about string,
) {
	t.Helper()
	require.NotEmpty(t, rows, about)
	want := a.logits(t, q)
	for i, row := range rows {
		if at, ok := differs(want[from+i], row); ok {
			require.Failf(t, "bits differ", "%s: %s: logit %d of position %d of %d is %g, want %g", a.f.Name,
				about, at, from+i, len(q.Tokens), row[at], want[from+i][at])
		}
	}
}

// differs finds the first number with other bits.
func differs(a, b []float32) (int, bool) {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i, true
		}
	}
	return 0, false
}

// history is a sequence with the logits of all positions that it computed.
type history struct {
	*runner.Sequence
	ask  runner.Request
	from int
	rows [][]float32
}

// begin admits a prompt and computes it.
func begin(t testing.TB, r *runner.Runner, q runner.Request) *history {
	t.Helper()
	s, err := r.Admit(t.Context(), q)
	require.NoError(t, err)
	s.AllLogits = true
	require.NoError(t, r.Prefill(t.Context(), s))
	return &history{Sequence: s, ask: q, from: s.Reused, rows: s.Logits}
}

// extend adds a token and computes it.
func (h *history) extend(t testing.TB, r *runner.Runner, token messages.Token) {
	t.Helper()
	require.NoError(t, r.Extend(t.Context(), h.Sequence, token))
	h.rows = append(h.rows, h.Logits...)
}

// generate extends by greedy tokens.
func (h *history) generate(t testing.TB, r *runner.Runner, n int) []messages.Token {
	t.Helper()
	for range n {
		h.extend(t, r, h.Next())
	}
	return h.Tokens[len(h.Tokens)-n:]
}

// check compares everything that was computed with the sequence alone.
func (h *history) check(t testing.TB, a *reference, about string) {
	t.Helper()
	q := h.ask
	q.Tokens = h.Tokens
	a.compare(t, q, h.from, h.rows, about)
}

// end releases the sequence.
func (h *history) end(t testing.TB, r *runner.Runner) {
	t.Helper()
	require.NoError(t, r.Release(t.Context(), h.Sequence))
}
