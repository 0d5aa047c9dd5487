package encoderdecoder_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// waitingAdmit is an admission that was submitted and may wait for pages.
type waitingAdmit struct {
	record *messages.Admit
	done   chan error
}

// submit starts an admission. It returns when the engine has tried it once: requests are
// served in order, so the answer to a later one tells that.
func (r *rig) submit(request messages.AdmitRequest) waitingAdmit {
	r.t.Helper()
	w := waitingAdmit{record: &messages.Admit{Requests: []messages.AdmitRequest{request}},
		done: make(chan error, 1)}
	require.NoError(r.t, r.Submit(w.record, func(err error) { w.done <- err }))
	_, err := r.Stats(context.Background())
	require.NoError(r.t, err)
	return w
}

// waits tells whether the admission has no answer yet.
func (w waitingAdmit) waits() bool { return len(w.done) == 0 }

// served returns the sequence of an admission that has waited.
func (r *rig) served(w waitingAdmit) *hostSequence {
	r.t.Helper()
	require.NoError(r.t, <-w.done)
	require.NoError(r.t, w.record.Results[0].Err)
	return r.begin(w.record.Requests[0], w.record.Results[0])
}

// An admission waits for pages of either kind, takes nothing meanwhile, and is served when
// they are there. One behind it waits as well, though it would fit.
func TestAdmissionsWaitForPagesOfEitherKind(t *testing.T) {
	for name, size := range map[string][]windows.PageCounts{"cross": pages(40, 5),
		"decoder": pages(5, 40)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: size, room: 2})
			defer r.end()
			first := r.start(ask(run(100, 8), run(0, 8)))
			before := r.picture()
			large := r.submit(ask(run(300, 16), run(0, 16)))
			small := r.submit(ask(run(400, 4), run(0, 4)))
			require.True(t, large.waits() && small.waits())
			require.Equal(t, before, r.picture(), "an admission that waits has taken something")

			r.release(first)
			l := r.served(large)
			assert.Zero(t, l.admitted.Cross.ReusedTokens)
			r.compute(l, 16)
			r.release(r.served(small))
			r.verify()
		})
	}
}

// An admission that waits is matched again when it is served: it shares the input that was
// stored meanwhile.
func TestAWaitingAdmissionReusesWhatCameMeanwhile(t *testing.T) {
	r := newRig(t, setup{pages: pages(5, 40), room: 1})
	defer r.end()
	first, err := r.admit(ask(run(100, 8), run(0, 8)))
	require.NoError(t, err)
	waiting := r.submit(ask(run(100, 8), run(50, 16)))
	require.True(t, waiting.waits())
	r.compute(first, 8)
	r.release(first)
	l := r.served(waiting)
	assert.Equal(t, 8, l.admitted.Cross.ReusedTokens)
	r.compute(l, 16)
	r.verify()
}

// An actor that fails leaves admissions waiting, and a release serves them afterwards.
func TestWaitingOutlivesAFailure(t *testing.T) {
	for _, name := range []string{"pool:cross_h2", "offloader"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: pages(40, 5), room: 1})
			defer r.end()
			first := r.start(ask(run(100, 8), run(0, 8)))
			waiting := r.submit(ask(run(300, 16), run(0, 16)))
			require.NoError(t, r.points.Arm(name))
			if err := r.Check(context.Background()); err != nil { // or a check of the engine's own met it
				require.ErrorIs(t, err, messages.ErrInternal)
			}
			stats, err := r.Stats(context.Background())
			require.NoError(t, err)
			require.EqualValues(t, 1, stats.Restarts)
			require.True(t, waiting.waits())
			r.release(first)
			r.compute(r.served(waiting), 16)
			r.verify()
		})
	}
}
