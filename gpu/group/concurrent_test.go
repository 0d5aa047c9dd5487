package group_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Goroutines share a stream, and each has one of its own: all ranks have the work of a
// stream in one order, which the checker of each rank holds, and no one's tickets are
// mixed up with another's.
func TestManyGoroutines(t *testing.T) {
	const goroutines, rounds = 8, 60
	l := newLanes(t, 4)
	l.sync(l.fill(l.a, 0, 1, 2, 3, 4, 5, 6, 7))
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			own, err := l.NewStream("own")
			assert.NoError(t, err)
			for range rounds {
				// The write to the host page is on the shared stream, whose order alone keeps two
				// goroutines apart that use the same page.
				out, err := l.Submit(l.a, &gpu.Batch{Copies: []gpu.Copy{l.out(g, g%3)}})
				assert.NoError(t, err)
				assert.NoError(t, l.Wait(own, out))
				fence, err := l.Fence(own)
				assert.NoError(t, err)
				assert.NoError(t, l.Sync(context.Background(), fence))
				assert.True(t, l.Done(out), "what a fence waited for has passed before it")
			}
			assert.NoError(t, l.DestroyStream(own))
		})
	}
	all.Wait()
	last := make([]messages.PageID, 0, 3)
	for host := range 3 {
		b := l.HostShare(0, l.pool, messages.PageID(host))
		last = append(last, messages.PageID(b[0]-mark(0, 0)))
		l.wantHost(host, int(last[host])) // the same writer was the last on every rank
	}
	l.clean(t)
	require.NoError(t, l.Close())
}
