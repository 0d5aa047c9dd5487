package survival_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Beams whose step the coordinator breaks off are lost, and their host does not
// know it yet: it may launch a kernel on the pages that it knows. So all of them are
// held until it is released, also those of a beam that the step was to end, and those
// that it was to copy.
func TestALostSequenceHoldsWhatItsHostKnows(t *testing.T) {
	const total = 24
	lost := 0
	for parts := range 12 {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: total}}})
		q := prompt(0, 6)
		q.BeamWidth = 3
		a := r.admit(q)
		r.compute(a.Sequence, 6)
		follow := func(parents ...int) error {
			step := messages.AppendStep{Sequence: a.Sequence}
			for i, parent := range parents {
				step.Beams = append(step.Beams, messages.BeamStep{Parent: parent, Token: messages.Token(i)})
			}
			return one(r.Append(ctx, []messages.AppendStep{step}))
		}
		for n := range 2 * tpb { // each beam has blocks of its own
			require.NoError(t, follow(0, 1, 2))
			r.compute(a.Sequence, 7+n)
		}
		known, err := r.TablesOf(ctx, a.Sequence)
		require.NoError(t, err)
		require.NoError(t, r.points.ArmWithin("coordinator", parts))
		_ = follow(0, 0, 2)
		for range 2 { // the failpoint may not have been hit
			_ = r.Check(ctx)
		}
		if _, err := r.TablesOf(ctx, a.Sequence); err != nil {
			require.ErrorIs(t, err, messages.ErrSequenceLost)
			lost++
			stats, err := r.Stats(ctx)
			require.NoError(t, err)
			other := r.admit(prompt(1000, (total-stats.Pools[0].Primary.Used)*tpb))
			for _, beam := range known[0] {
				for _, page := range beam {
					assert.False(t, slices.Contains(other.Tables[0][0], page),
						"after %d parts page %d is another's", parts, page)
				}
			}
			r.release(other.Sequence)
			require.ErrorIs(t, one(r.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})),
				messages.ErrSequenceLost)
		} else {
			r.release(a.Sequence)
		}
		assert.Equal(t, []int{0}, r.used())
		r.close()
	}
	assert.Positive(t, lost)
}
