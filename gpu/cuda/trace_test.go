//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// setTimes is the fake's clock: each copy takes a millisecond.
func setTimes(set func(fn, any)) {
	set(fnEventElapsedTime, func(out, from, to uintptr) uintptr {
		return on(fnEventElapsedTime, func(k *fake) result {
			a, b := k.events[from], k.events[to]
			switch {
			case a == nil || b == nil || !a.timed || !b.timed || a.recorded == 0 || b.recorded == 0:
				k.expect(false, "the time between events that have none")
				return invalidHandle
			case a.passed < a.recorded || b.passed < b.recorded:
				return notReady
			}
			put(out, float32(b.at-a.at))
			return success
		})
	})
}

// newTraced is a rig whose device tells of its copies. On the fake each copy takes a
// millisecond, and copies of all streams share the time.
func newTraced(t *testing.T, without ...fn) (r *rig, told *[]gpu.Transfer) {
	r, told = newRig(t, without...), &[]gpu.Transfer{}
	r.Device.trace.tell = func(x gpu.Transfer) { *told = append(*told, x) }
	return r, told
}

func (r *rig) fence(s gpu.Stream) {
	r.t.Helper()
	_, err := r.Fence(s)
	require.NoError(r.t, err)
}

// A batch is told of when it has ended, with the time of its copies.
func TestCopiesAreMeasured(t *testing.T) {
	for name, without := range map[string][]fn{"counters": nil, "events": {fnStreamWriteValue64},
		"loop": {fnMemcpyBatchAsync}} {
		t.Run(name, func(t *testing.T) {
			r, told := newTraced(t, without...)
			r.fake.held = make(chan struct{})
			r.submit(r.a, r.onboard(1, 3, 5))
			r.submit(r.a, r.onboard(7))
			r.fence(r.b)
			assert.Empty(t, *told, "they are under way")
			r.fake.release()
			r.fence(r.b)
			require.Len(t, *told, 2)
			assert.Equal(t, gpu.Transfer{Stream: "a", Label: "in", Copies: 3, Bytes: 3 * 4096,
				End: 3 * time.Millisecond}, (*told)[0])
			assert.Equal(t, gpu.Transfer{
				Stream: "a", Label: "in", Copies: 1, Bytes: 4096, Start: 3 * time.Millisecond,
				End: 4 * time.Millisecond,
			}, (*told)[1])
			for range 100 {
				r.fence(r.a)
				require.NoError(t, r.Sync(t.Context(), r.submit(r.a, r.onboard(1, 3))))
			}
			r.fence(r.a)
			assert.Len(t, *told, 102)
			assert.Equal(t, 204*time.Millisecond, (*told)[len(*told)-1].End)
			assert.LessOrEqual(t, len(r.trace.free), 4, "events are used again")
		})
	}
}

// The time for which copies wait for others is none in which they are under way.
func TestWaitsAreNotMeasured(t *testing.T) {
	r, told := newTraced(t)
	r.fake.held = make(chan struct{})
	first := r.submit(r.a, r.onboard(1, 3, 5, 7))
	second := r.onboard(9, 11)
	second.Waits = []gpu.Ticket{first}
	r.submit(r.b, second)
	r.fake.release()
	r.fence(r.a)
	require.Len(t, *told, 2)
	assert.Equal(t, gpu.Transfer{Stream: "b", Label: "in", Copies: 2, Bytes: 2 * 4096,
		Start: 4 * time.Millisecond, End: 6 * time.Millisecond}, (*told)[1])
}

// A stream that is slow does not hold up the others, and Close tells of what is left.
func TestCloseTellsOfTheRest(t *testing.T) {
	r, told := newTraced(t)
	r.fake.lazy = true
	for range maxMeasured + 5 {
		r.submit(r.a, r.onboard(1))
	}
	assert.Len(t, r.trace.measured, maxMeasured, "no more are measured at one time")
	r.fake.lazy = false
	require.NoError(t, r.Sync(t.Context(), r.submit(r.b, r.onboard(2))))
	require.NoError(t, r.Close())
	assert.GreaterOrEqual(t, len(*told), maxMeasured)
	for _, x := range *told {
		assert.Positive(t, x.End-x.Start)
	}
}

// Where events cannot be had or recorded, or a copy is refused, the copies are made as ever
// and not told of.
func TestWhatCannotBeMeasured(t *testing.T) {
	for _, c := range []struct {
		at    fn
		spare int
	}{{fnEventCreate, 0}, {fnEventCreate, 1}, {fnEventRecord, 0}, {fnEventRecord, 1},
		{fnEventElapsedTime, 0}, {fnEventElapsedTime, 3}} {
		t.Run(fmt.Sprintf("%s %d", c.at, c.spare),
			func(t *testing.T) { cannotBeMeasured(t, c.at, c.spare) })
	}
	t.Run("refused", func(t *testing.T) {
		r, told := newTraced(t)
		r.fake.failCopy[gpu.Onboard] = 2
		_, err := r.Submit(r.a, r.onboard(1))
		require.ErrorIs(t, err, gpu.ErrCopyFailed)
		require.NoError(t, r.Close())
		assert.Empty(t, *told)
	})
}

// cannotBeMeasured makes calls of a function fail after some that succeed; 3: after a batch
// that was measured.
func cannotBeMeasured(t *testing.T, at fn, spare int) {
	r, told := newTraced(t)
	r.HostBytes(r.pool, 1)[0] = 42
	if spare == 3 {
		require.NoError(t, r.Sync(t.Context(), r.submit(r.a, r.onboard(3))))
		r.fence(r.a)
	}
	before := len(*told)
	r.fake.fail[at], r.fake.failAfter[at] = outOfMemory, spare%3
	require.NoError(t, r.Sync(t.Context(), r.submit(r.a, r.onboard(1))))
	r.fence(r.b)
	assert.Len(t, *told, before)
	delete(r.fake.fail, at)
	out := r.onboard(1)
	out.Copies[0].Src, out.Copies[0].Dst = out.Copies[0].Dst,
		gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: 9}
	require.NoError(t, r.Sync(t.Context(), r.submit(r.a, out)))
	assert.EqualValues(t, 42, r.HostBytes(r.pool, 9)[0])
	r.fence(r.a)
	assert.Len(t, *told, before+1, "the next is measured")
}

// Options name the function that is told; without one there are no events for it.
func TestTraceIsAskedFor(t *testing.T) {
	r := newRig(t)
	before := r.fake.calls[fnEventRecord]
	r.submit(r.a, r.onboard(1))
	assert.Equal(t, before+1, r.fake.calls[fnEventRecord], "that of the ticket")
	told := 0
	_, table := newFake(2)
	t.Cleanup(func() { current.Store(r.fake) })
	d, err := open(table, Options{Trace: func(gpu.Transfer) { told++ }})
	require.NoError(t, err)
	d.trace.tell(gpu.Transfer{})
	assert.Equal(t, 1, told)
	require.NoError(t, d.Close())
}
