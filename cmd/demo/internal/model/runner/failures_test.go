package runner_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
)

// Pages that a rebalance has given other numbers are found again.
func TestRebalance(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).pooled) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: 200, HostPages: 20})
		pools := r.Engine.Pools()
		require.Len(t, pools, 2)
		moved := []int{0, 0}
		var running, before []*history
		for i := range 8 { // they take the first pages, so that the others have the last
			before = append(before,
				begin(t, r, runner.Request{Tokens: f.Cases[3].Tokens, Salt: string(rune('a' + i))}))
		}
		for _, c := range f.Cases {
			running = append(running, begin(t, r, runner.Request{Tokens: c.Tokens}))
		}
		for _, h := range before {
			h.end(t, r)
		}
		for step := range 8 {
			// Hardly more than is held, or as many as there were.
			pages := []int{200, 200}
			if step%2 == 0 {
				stats, err := r.Engine.Stats(t.Context())
				require.NoError(t, err)
				for p := range pages {
					pages[p] = stats.Pools[p].Primary.Used + 2*len(running)
				}
			}
			done, err := r.Engine.Resize(t.Context(), pages)
			require.NoError(t, err)
			for p, m := range done.Moved {
				moved[p] += len(m)
			}
			for _, h := range running {
				h.generate(t, r, 1)
			}
		}
		assert.Positive(t, slices.Min(moved), "held pages had to move")
		for _, h := range running {
			h.check(t, a, "after rebalances")
			h.end(t, r)
		}
	}
}

// A sequence goes on with the same bits after any actor has failed: where it was
// lost, admitted again.
func TestPanickingActors(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		points := &enginetest.Failpoints{}
		options := []actors.Option{actors.WithRestartLimit(1000, 1), enginetest.WithFailpoints(points)}
		r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: 30, HostPages: 30,
			Options: options})
		names := []string{"coordinator", "tree", "offloader"}
		for _, p := range r.Engine.Pools() {
			if !f.Encodes() {
				names = append(names, "pool:"+p.Name)
			}
		}
		c := f.Cases[2]
		for _, actor := range names {
			h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
			for range 3 {
				require.NoError(t, points.Arm(actor))
				for range 3 {
					h = survive(t, r, h, f)
				}
			}
			h.check(t, a, "after "+actor+" failed")
			h.end(t, r)
			_ = r.Engine.Check(t.Context()) // an actor that no call has asked yet fails over it
		}
		stats, err := r.Engine.Stats(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, stats.Restarts, int64(len(names)), name)
		require.NoError(t, r.Engine.Check(t.Context()))
	}
}

// survive extends a sequence by a token, whatever the engine says, at most a few
// times: what is lost or in doubt is released and admitted again.
func survive(t *testing.T, r *runner.Runner, h *history, f *fixtureModel) *history {
	t.Helper()
	next := h.Next()
	for range 4 {
		err := r.Extend(t.Context(), h.Sequence, next)
		if err == nil {
			h.rows = append(h.rows, h.Logits...)
			return h
		}
		lost := errors.Is(err, messages.ErrSequenceLost) || errors.Is(err, messages.ErrInternal)
		require.True(t, lost, "%v", err)
		tokens := append([]messages.Token(nil), h.Tokens[:h.from+len(h.rows)]...)
		_ = r.Release(t.Context(), h.Sequence) // it may be gone
		for range 3 {
			s, err := r.Admit(t.Context(), runner.Request{Tokens: tokens, Encoder: h.ask.Encoder})
			if err != nil {
				continue
			}
			s.AllLogits = true
			require.NoError(t, r.Prefill(t.Context(), s))
			h = &history{Sequence: s, ask: h.ask, from: s.Reused, rows: s.Logits}
			break
		}
	}
	require.Fail(t, "the engine does not come back", f.Name)
	return h
}

// The tests can fail: an engine that leaves out one of its waits is found out, by
// the checker of order or by the bits.
func TestAMissingWaitShows(t *testing.T) {
	for _, name := range []string{"llama_mqa", "bamba_mamba2"} {
		t.Run(name, func(t *testing.T) { everyWaitShows(t, fixture(t, name)) })
	}
}

func everyWaitShows(t *testing.T, f *fixtureModel) {
	a := newReference(t, f, runner.Config{})
	// The other four waits are between copies of the engine, which a host that
	// looks at its own numbers sees too rarely; actors/internal/hazards has a test of each.
	rare := []string{
		"offload waits for readers of host page", "copy waits for writer of destination",
		"onboard waits for offload of host page", "onboard waits for writer of destination",
	}
	for _, wait := range offloader.WaitNames() {
		if slices.Contains(rare, wait) {
			continue
		}
		found := false
		for seed := int64(0); seed < 100 && !found; seed++ {
			found = withoutWait(t, f, a, wait, seed)
		}
		assert.True(t, found, "%s is missing and no one sees it", wait)
	}
}

// withoutWait runs several sequences without one wait and tells whether an output differs.
func withoutWait(t *testing.T, f *fixtureModel, a *reference, wait string, seed int64) bool {
	t.Helper()
	c := runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: 20, HostPages: 24, Seed: seed, MaxLen: 512,
		Checked: true, Options: []actors.Option{enginetest.WithoutWait(wait)}}
	r, err := runner.Open(f.Model, c)
	require.NoError(t, err)
	p := newPlayer(t, f, a, uint64(seed), r)
	p.tolerant = true
	p.play(300)
	p.leave()
	bad := p.wrong || len(r.Hazards()) > 0
	require.NoError(t, r.Close())
	return bad
}
