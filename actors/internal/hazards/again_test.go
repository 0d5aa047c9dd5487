package hazards

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Two steps of one batch copy a page on write, the second onto the page that the
// first released. If the tree fails then, the first has nothing to go back to: it is
// lost, and must not go on with another's bytes.
func TestAStepWhosePageAnotherHasWrittenIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{pages: windows.PageCounts{Primary: 5}})
		var running []*sequence
		for i := range 2 {
			q, _, err := w.start(text(1+i, 6))
			require.NoError(t, err)
			child, err := w.fork(q)
			require.NoError(t, err)
			// its last block, of two tokens, is stored on a page that q holds
			require.NoError(t, w.release(child))
			running = append(running, q)
		}
		w.right(running...)
		// The engine may still be at work behind its last answer, and the tree is to fail over
		// the steps.
		synctest.Wait()
		require.NoError(t, w.points.Arm("tree"))
		steps := []messages.AppendStep{
			{Sequence: running[0].id, Tokens: []messages.Token{7}},
			{Sequence: running[1].id, Tokens: []messages.Token{8}},
		}
		_, err := w.Append(context.Background(), steps)
		require.ErrorIs(t, err, messages.ErrInternal)
		results, err := w.Append(context.Background(), steps)
		require.NoError(t, err)
		stats, err := w.Stats(context.Background())
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats.Restarts)
		require.ErrorIs(t, results[0].Err, messages.ErrSequenceLost)
		require.NoError(t, results[1].Err)
		w.right(running[1])
		require.Error(t, w.release(running[0]))
		require.NoError(t, w.release(running[1]))
		w.right()
		w.close()
	})
}
