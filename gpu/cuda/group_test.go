//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/messages"
)

// failingGroup is a group of two devices of one driver on which the conformance suite can
// inject faults: they hit rank 0, which is asked first.
type failingGroup struct {
	*group.Device
	fake *fake
}

func (f failingGroup) Fail(way gpu.Direction, n int) { f.fake.failCopy[way] += n }

// openGroup opens the two devices of a driver, each in its own context, as one. The driver
// refuses what is done to one of them in the context of the other.
func openGroup(t *testing.T, seed uint64, without ...fn) (*group.Device, *fake) {
	t.Helper()
	first, k := openSeeded(t, seed, without...)
	g := groupOver(t, first)
	t.Cleanup(func() { require.NoError(t, g.Close()) }) // before the cleanup of the first
	return g, k
}

// groupOver opens the second device beside the first.
func groupOver(t *testing.T, first *Device) *group.Device {
	t.Helper()
	second, err := open(first.driver, Options{Ordinal: 1})
	require.NoError(t, err)
	g, err := group.New(check.Wrap(first, check.Options{}), check.Wrap(second, check.Options{}))
	require.NoError(t, err)
	return g
}

func TestGroup(t *testing.T) {
	for name, without := range map[string][]fn{"all functions": nil,
		"the oldest drivers": {fnMemcpyBatchAsync, fnStreamWriteValue64}} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) gpu.Device {
				g, k := openGroup(t, 3, without...)
				return failingGroup{g, k}
			})
		})
	}
	g, _ := openGroup(t, 1)
	assert.Equal(t, 2, g.Info().Ranks)
	assert.Equal(t, "cuda", g.Info().Backend)
	for r := range 2 {
		c := g.Rank(r).(*check.Device)
		assert.EqualValues(t, r, c.Unwrap().(*Device).ordinal)
	}
}

// The streams and events of a host on each device become those of the group; a capture on
// one of them refuses the call, and nothing else.
func TestGroupBesideAHost(t *testing.T) {
	g, k := openGroup(t, 1)
	var own []gpu.Stream
	for r := range 2 {
		d := g.Rank(r).(*check.Device).Unwrap().(*Device)
		theirs := uintptr(0x500 + r)
		k.mu.Lock()
		k.streams[theirs] = &fakeStream{context: fakeContext + uintptr(r)}
		k.mu.Unlock()
		s, err := d.External("the host's", theirs)
		require.NoError(t, err)
		own = append(own, s)
	}
	compute, err := g.Adopt("compute", own...)
	require.NoError(t, err)
	fence, err := g.Fence(compute)
	require.NoError(t, err)
	copies, err := g.NewStream("copies")
	require.NoError(t, err)
	pool, err := g.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: 4096, DevicePages: 2, HostPages: 2})
	require.NoError(t, err)
	// The pages are the ranks' own: what one writes, the other does not have.
	host := gpu.Slot{Pool: pool, Tier: messages.Secondary}
	end := g.HostWrite(host)
	gpu.WriteHostPage(g, pool, 0, append(make([]byte, 4096), bytesOf(7, 4096)...))
	end()
	in := gpu.Copy{Src: host, Dst: gpu.Slot{Pool: pool, Page: 1}, Bytes: 4096}
	ticket, err := g.Submit(copies, &gpu.Batch{Waits: []gpu.Ticket{fence}, Copies: []gpu.Copy{in}})
	require.NoError(t, err)
	out := gpu.Copy{Src: in.Dst, Dst: gpu.Slot{Pool: pool, Tier: messages.Secondary, Page: 1},
		Bytes: 4096}
	ticket, err = g.Submit(copies, &gpu.Batch{Waits: []gpu.Ticket{ticket}, Copies: []gpu.Copy{out}})
	require.NoError(t, err)
	require.NoError(t, g.Sync(context.Background(), ticket))
	end = g.HostRead(out.Dst)
	assert.Equal(t, bytesOf(0, 4096), g.HostShare(0, pool, 1))
	assert.Equal(t, bytesOf(7, 4096), g.HostShare(1, pool, 1))
	end()

	capture := &fakeCapture{}
	k.mu.Lock()
	k.streams[0x501].capturing, k.captures[capture] = capture, true
	k.mu.Unlock()
	_, err = g.Fence(compute)
	require.ErrorIs(t, err, ErrCapturing)
	require.ErrorContains(t, err, "rank 1 of 2")
	require.ErrorIs(t, g.Wait(compute, ticket), ErrCapturing)
	k.mu.Lock()
	k.streams[0x501].capturing = nil
	delete(k.captures, capture)
	k.mu.Unlock()
	require.NoError(t, g.Wait(compute, ticket))
	last, err := g.Fence(compute)
	require.NoError(t, err)
	require.NoError(t, g.Sync(context.Background(), last))
	require.NoError(t, g.DestroyStream(compute))
	k.mu.Lock()
	delete(k.streams, 0x500)
	delete(k.streams, 0x501)
	k.mu.Unlock()
	require.NoError(t, g.Close())
}

// bytesOf is a page of one byte.
func bytesOf(v byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = v
	}
	return b
}

// An error that ends the context of a device ends the group, which says whose it was.
func TestLostDeviceOfAGroup(t *testing.T) {
	k, table := newFake(1)
	first, err := open(table, Options{}) // what a lost context has is not given back
	require.NoError(t, err)
	g := groupOver(t, first)
	s, err := g.NewStream("s")
	require.NoError(t, err)
	pool, err := g.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: 4096, DevicePages: 2, HostPages: 2})
	require.NoError(t, err)
	k.mu.Lock()
	k.fail[fnMemcpyAsync], k.failAfter[fnMemcpyAsync] = illegalAddress, 1 // the second device's
	k.forgotten = true
	k.mu.Unlock()
	copies := []gpu.Copy{{Src: gpu.Slot{Pool: pool}, Dst: gpu.Slot{Pool: pool,
		Tier: messages.Secondary}, Bytes: 4096}}
	_, err = g.Submit(s, &gpu.Batch{Copies: copies})
	require.ErrorIs(t, err, gpu.ErrDeviceLost)
	require.ErrorContains(t, err, "rank 1 of 2")
	_, err = g.Fence(s)
	require.ErrorIs(t, err, gpu.ErrDeviceLost)
	k.mu.Lock()
	delete(k.fail, fnMemcpyAsync)
	k.mu.Unlock()
	require.ErrorIs(t, errors.Join(g.DestroyPool(pool), g.DestroyStream(s)), gpu.ErrDeviceLost)
	memory, err := g.Rank(0).Memory()
	require.NoError(t, err)
	assert.Positive(t, memory.Free, "the other device works")
	require.NoError(t, g.Close())
}
