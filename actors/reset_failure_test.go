package actors_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The tree has forgotten pinned blocks when another actor fails, and its answer is lost. The pin
// holds none of them afterwards, in either tier: their numbers stand for other blocks then.
func TestAPinOfForgottenBlocksWhoseAnswerIsLost(t *testing.T) {
	ctx := context.Background()
	for name, forget := range map[string]func(*rig) error{
		"reset": func(r *rig) error { return r.Reset(ctx) },
		"invalidate": func(r *rig) error {
			_, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 1)}})
			return err
		},
	} {
		for _, others := range []int{0, 1} { // prompts that send the first one to host memory
			r := newRig(t, setup{
				pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}, change: func(c *windows.Config) { c.EventBufferMaxSize = 100 },
			})
			r.store(run(0, 16))
			for i := range others {
				r.store(run(100*(i+1), 16))
			}
			pinned, err := r.Pin(ctx, messages.Prefix{Tokens: run(0, 16)})
			require.NoError(t, err)
			require.Equal(t, 16, pinned.Tokens)
			require.NoError(t, r.points.Arm("events"))
			require.NoError(t, enginetest.Repeat(func() error { return forget(r) }), name)
			for i := range 3 {
				r.store(run(500+100*i, 16))
			}
			require.NoError(t, enginetest.Repeat(func() error { return r.Unpin(ctx, pinned.Pin) }), name)
			// An actor on a goroutine of its own may fail after the answers.
			require.Eventually(t, func() bool {
				stats, err := r.Stats(ctx)
				return err == nil && stats.Restarts == 1
			}, time.Minute, time.Millisecond, name)
			for i := range 2 { // all pages can be taken
				r.store(run(900+100*i, 16))
			}
			r.verify()
			r.close()
		}
	}
}
