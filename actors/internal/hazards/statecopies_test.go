package hazards

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// lossy is a device that takes copies and leaves some of them out.
type lossy struct {
	*check.Device
	mu   sync.Mutex
	drop func(gpu.Copy) bool // nil: none
	lost int
}

// Submit queues the copies that are not to be left out. The ticket does not show it.
func (d *lossy) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := *b
	if d.drop != nil {
		kept.Copies = slices.DeleteFunc(slices.Clone(b.Copies), d.drop)
		d.lost += len(b.Copies) - len(kept.Copies)
	}
	if len(kept.Copies) > 0 || len(b.Copies) == 0 {
		return d.Device.Submit(s, &kept)
	}
	if err := d.Wait(s, b.Waits...); err != nil {
		return gpu.Ticket{}, err
	}
	return d.Fence(s)
}

// leaveOut makes the device leave out copies from now on.
func (d *lossy) leaveOut(drop func(gpu.Copy) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop = drop
}

// zeros, within, outward and inward are the directions of copies of states.
func zeros(c gpu.Copy) bool { return c.Zero }

func within(c gpu.Copy) bool {
	return !c.Zero && c.Src.Tier == messages.Primary && c.Dst.Tier == messages.Primary
}

func outward(c gpu.Copy) bool { return c.Dst.Tier == messages.Secondary }

func inward(c gpu.Copy) bool { return c.Src.Tier == messages.Secondary }

// stateCopy is one copy of a state: what comes before it, and the request that makes it,
// which returns the sequences that run then.
type stateCopy struct {
	name   string
	states windows.PageCounts
	copies func(gpu.Copy) bool
	before func(w *world) []*sequence
	run    func(w *world, running []*sequence) []*sequence
}

// begin starts sequences of three tokens each, for which there is no checkpoint.
func begin(n int) func(w *world) []*sequence {
	return func(w *world) (running []*sequence) {
		for i := range n {
			q, _, err := w.start(text(10+i, 3))
			require.NoError(w.t, err)
			running = append(running, q)
		}
		return running
	}
}

// discard ends a sequence and leaves the state of its last token in a page that is free.
func (w *world) discard(q *sequence) {
	w.t.Helper()
	results, err := w.Release(context.Background(),
		[]messages.ReleaseStep{{Sequence: q.id, Discard: true, After: q.last}})
	require.NoError(w.t, outcome(results, err))
}

// storing stores a prompt of n tokens; checkpoints are at its last boundary and its end.
func storing(n int) func(w *world) []*sequence {
	return func(w *world) []*sequence {
		w.leave(text(1, n))
		return nil
	}
}

// displaced stores eight tokens and moves their checkpoints to host memory. One of the two
// pages of the device is free then, and the other one is held.
func displaced(w *world) []*sequence {
	w.leave(text(1, 8))
	running := begin(2)(w)
	w.discard(running[0])
	return running[1:]
}

// reusing admits a prompt whose first n tokens are stored.
func reusing(n int) func(w *world, running []*sequence) []*sequence {
	return func(w *world, running []*sequence) []*sequence {
		q, a, err := w.start(append(text(1, n), text(2, 1)...))
		require.NoError(w.t, err)
		require.Equal(w.t, n, a.ReusedTokens)
		return append(running, q)
	}
}

// another starts a sequence that nothing is stored of.
func another(w *world, running []*sequence) []*sequence {
	q, _, err := w.start(text(3, 3))
	require.NoError(w.t, err)
	return append(running, q)
}

// stateCopies are all that the engine makes.
var stateCopies = []stateCopy{
	{"zeros into a working page", windows.PageCounts{Primary: 1}, zeros, func(w *world) []*sequence {
		w.discard(begin(1)(w)[0])
		return nil
	}, another},
	{"working page to a checkpoint", windows.PageCounts{Primary: 2}, within, begin(0),
		func(w *world, _ []*sequence) []*sequence {
			q, a, err := w.start(text(1, 6))
			require.NoError(w.t, err)
			require.Equal(w.t, []int{4}, a.Checkpoints)
			return []*sequence{q}
		}},
	{"checkpoint to a working page", windows.PageCounts{Primary: 4}, within, storing(8), reusing(8)},
	{"checkpoint of a block stored in part", windows.PageCounts{Primary: 4}, within, storing(6),
		reusing(6)},
	{"checkpoint to host memory", windows.PageCounts{Primary: 2, Secondary: 2}, outward, storing(8),
		another},
	{"checkpoint from host memory into a working page", windows.PageCounts{Primary: 2, Secondary: 2},
		inward, displaced, reusing(8)},
	{"checkpoint from host memory for a prefetch", windows.PageCounts{Primary: 2, Secondary: 2},
		inward, displaced,
		func(w *world, running []*sequence) []*sequence {
			n, err := w.Prefetch(context.Background(), messages.Prefix{Tokens: text(1, 8)})
			require.NoError(w.t, err)
			require.Equal(w.t, 1, n)
			return running
		}},
	{"working page to that of a fork", windows.PageCounts{Primary: 2}, within, begin(1),
		func(w *world, running []*sequence) []*sequence {
			child, err := w.fork(running[0])
			require.NoError(w.t, err)
			return append(running, child)
		}},
	{"working page that a resize moves", windows.PageCounts{Primary: 2}, within,
		func(w *world) []*sequence {
			running := begin(2)(w)
			w.discard(running[0])
			return running[1:]
		}, func(w *world, running []*sequence) []*sequence {
			_, err := w.Resize(context.Background(), []int{32, 1})
			require.NoError(w.t, err)
			return running
		}},
}

// Each copy of a state that is left out is found by its bytes.
func TestEveryCopyOfAStateIsNeeded(t *testing.T) {
	for _, c := range stateCopies {
		t.Run(c.name, func(t *testing.T) {
			for _, leaveOut := range []bool{false, true} {
				device := &lossy{}
				w := newWorld(t, setup{
					pages: windows.PageCounts{Primary: 32}, states: c.states, change: withoutAhead,
					wrap: func(d *check.Device) gpu.Device { device.Device = d; return device },
				})
				pool := w.DevicePools()[1]
				running := c.before(w)
				w.right(running...)
				if leaveOut {
					device.leaveOut(func(copied gpu.Copy) bool {
						return copied.Dst.Pool == pool && c.copies(copied)
					})
				}
				running = c.run(w, running)
				device.leaveOut(nil)
				if problems := w.wrong(running...); leaveOut {
					assert.Equal(t, 1, device.lost)
					assert.NotEmpty(t, problems, "nothing is found")
				} else {
					assert.Empty(t, problems)
				}
				for _, q := range running {
					w.discard(q)
				}
				require.NoError(t, w.Check(context.Background()))
				w.close()
			}
		})
	}
}
