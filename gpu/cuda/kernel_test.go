//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// kernelBeside moves batches of small and large pieces in all directions, some of more pieces
// than a launch takes, some cut at odd bytes, and compares every byte of both tiers with a model.
func kernelBeside(t *testing.T, d *Device) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range rounds {
		// Pages of odd sizes have pieces without alignment; those of 96 KiB go by the engines
		// between the tiers.
		page := []int64{256, 96 << 10, 1000, 4096, 12288, 40000}[round%6]
		pages := int(min(1500, 12<<20/page))
		checkMoves(t, d, rng, page, pages)
	}
}

// checkMoves moves random parts of random pages of one pool, in three batches that follow one
// another.
func checkMoves(t *testing.T, d *Device, rng *rand.Rand, page int64, pages int) {
	p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: pages,
		HostPages: pages})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	host, device := make([][]byte, pages), make([][]byte, pages)
	for i := range pages {
		b := d.HostBytes(p, messages.PageID(i))
		for j := range b {
			b[j] = byte(j*j>>3) + byte(i*31) + byte(page)
		}
		host[i], device[i] = append([]byte(nil), b...), make([]byte, page)
		fill(device[i], poisonNew)
	}
	slot := func(tier messages.Tier, i int) gpu.Slot {
		return gpu.Slot{Pool: p, Tier: tier, Page: messages.PageID(i)}
	}
	whole := rng.IntN(2) == 0
	part := func() (from, to, n int64) {
		if whole {
			return 0, 0, page
		}
		n = 1 + rng.Int64N(page)
		return rng.Int64N(page - n + 1), rng.Int64N(page - n + 1), n
	}
	var last gpu.Ticket
	move := func(from, to messages.Tier) {
		b := &gpu.Batch{Waits: []gpu.Ticket{last}}
		sources, targets := rng.Perm(pages), rng.Perm(pages)
		n := pages
		if from == to { // no page is source and destination
			n = pages / 2
			targets = sources[n:]
		}
		bytes := map[messages.Tier][][]byte{messages.Primary: device, messages.Secondary: host}
		for i := range n {
			so, do, length := part()
			b.Copies = append(b.Copies, gpu.Copy{Src: slot(from, sources[i]), Dst: slot(to, targets[i]),
				SrcOffset: so, DstOffset: do, Bytes: length})
			copy(bytes[to][targets[i]][do:do+length], bytes[from][sources[i]][so:])
		}
		last, err = d.Submit(s, b)
		require.NoError(t, err)
	}
	move(messages.Secondary, messages.Primary)
	move(messages.Primary, messages.Primary)
	move(messages.Secondary, messages.Primary)
	move(messages.Primary, messages.Secondary)
	require.NoError(t, d.Sync(context.Background(), last))
	for i := range pages {
		require.Equal(t, host[i], d.HostBytes(p, messages.PageID(i)), "host page %d of %d bytes", i, page)
	}
	out := &gpu.Batch{}
	for i := range pages {
		out.Copies = append(out.Copies, gpu.Copy{Src: slot(messages.Primary, i),
			Dst: slot(messages.Secondary, pages-1-i), Bytes: page})
	}
	last, err = d.Submit(s, out)
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background(), last))
	for i := range pages {
		require.Equal(t, device[i], d.HostBytes(p, messages.PageID(pages-1-i)),
			"device page %d of %d bytes", i, page)
	}
	require.NoError(t, d.DestroyStream(s))
	require.NoError(t, d.DestroyPool(p))
}

func TestKernelBesideCopies(t *testing.T) {
	for name, without := range map[string][]fn{"batches": nil, "single copies": {fnMemcpyBatchAsync}} {
		t.Run(name, func(t *testing.T) {
			d, k := openWith(t, linkKernel, 1, without...)
			kernelBeside(t, d)
			assert.NotZero(t, k.calls[fnLaunchKernel])
			assert.NotZero(t, k.calls[fnMemcpyBatchAsync]+k.calls[fnMemcpyAsync],
				"large pieces go another way")
		})
	}
}

// A device without the kernel, or whose driver refuses it, moves its pieces as others.
func TestWithoutKernel(t *testing.T) {
	for _, c := range []struct {
		name    string
		fail    fn
		unloads int
	}{{"module", fnModuleLoadData, 0}, {"function", fnModuleGetFunction, 1}} {
		t.Run(c.name, func(t *testing.T) {
			k, table := newFake(1)
			k.fail[c.fail] = 218
			d, err := open(table, linkKernel)
			require.NoError(t, err)
			assert.Empty(t, d.Info().Local)
			kernelBeside(t, d)
			assert.Zero(t, k.calls[fnLaunchKernel])
			require.NoError(t, d.Close())
			assert.Equal(t, c.unloads, k.calls[fnModuleUnload])
			assert.Nil(t, d.copies.kernel.memory)
		})
	}
	_, table := newFake(1)
	d, err := open(table, Options{NoKernel: true})
	require.NoError(t, err)
	assert.Empty(t, d.Info().Local)
	require.NoError(t, d.Close())
}

// What the kernel takes of a batch: by direction, size and number.
func TestPiecesOfTheKernel(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        Options
		page     int64
		way      gpu.Direction
		copies   int
		launches int
		offset   int64 // of the bytes in their pages
	}{
		{"between the tiers by default", Options{}, 4096, gpu.Onboard, 9, 0, 0},
		{"within the device", Options{}, 4096, gpu.Local, 4, 1, 0},
		{"too few", Options{}, 4096, gpu.Local, 3, 0, 0},
		{"none below 0", Options{KernelBelow: -1}, 4096, gpu.Onboard, 9, 0, 0},
		{"to host memory", Options{KernelBelow: 4097}, 4096, gpu.Offload, 4, 1, 0},
		{"not below", Options{KernelBelow: 4096}, 4096, gpu.Offload, 4, 0, 0},
		{"no kernel", Options{NoKernel: true, KernelBelow: 1 << 20}, 4096, gpu.Local, 9, 0, 0},
		{"short and not aligned", Options{}, 4096, gpu.Local, 4, 1, 8},
		{"long and not aligned", Options{}, 128 << 10, gpu.Local, 4, 0, 8},
		{"long", Options{}, 128 << 10, gpu.Local, 4, 1, 0},
		{"more than a launch takes", Options{}, 256, gpu.Local, longPieces + 1, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, k := openWith(t, c.o, 1)
			p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: c.page, DevicePages: 4 * c.copies,
				HostPages: 4 * c.copies})
			require.NoError(t, err)
			s, err := d.NewStream("s")
			require.NoError(t, err)
			ticket, err := d.Submit(s,
				&gpu.Batch{Copies: scattered(p, c.way, c.copies, c.page-c.offset, c.offset)})
			require.NoError(t, err)
			require.NoError(t, d.Sync(context.Background(), ticket))
			assert.Equal(t, c.launches, k.calls[fnLaunchKernel])
		})
	}
}

// scattered are copies of pages that do not adjoin.
func scattered(p gpu.Pool, way gpu.Direction, n int, bytes, offset int64) (list []gpu.Copy) {
	for i := range n {
		c := gpu.Copy{Src: gpu.Slot{Pool: p, Page: messages.PageID(2 * i)},
			Dst:       gpu.Slot{Pool: p, Page: messages.PageID(4*n - 1 - 2*i)},
			SrcOffset: offset, DstOffset: offset, Bytes: bytes}
		switch way {
		case gpu.Offload:
			c.Dst.Tier = messages.Secondary
		case gpu.Onboard:
			c.Src.Tier = messages.Secondary
		}
		list = append(list, c)
	}
	return list
}

// A batch with pieces for the kernel of both kinds, and others: the others are merged, and each
// kind has a launch of its own.
func TestKindsOfPiecesInABatch(t *testing.T) {
	r := newRigWith(t, Options{KernelBelow: 8192})
	b := &gpu.Batch{}
	for i := range 4 { // within the device, and to host memory
		b.Copies = append(b.Copies,
			gpu.Copy{Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(i)},
				Dst: gpu.Slot{Pool: r.pool, Page: messages.PageID(15 - i)}, Bytes: 4096},
			gpu.Copy{Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(i)},
				Dst:   gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: messages.PageID(15 - i)},
				Bytes: 4096})
	}
	b.Copies = append(b.Copies, r.onboard(8, 7, 6).Copies...) // neighbours, too long for the kernel
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, b)))
	assert.Equal(t, 2, r.fake.calls[fnLaunchKernel])
	assert.Equal(t, 1, r.fake.calls[fnMemcpyAsync], "three pages are one piece")
}

func TestGridOfTheKernel(t *testing.T) {
	for _, c := range []struct {
		pieces        int
		most          uint64
		local         bool
		blocks, shift int
	}{
		{4, 4096, false, 1, 0},        // none is cut below a segment
		{4, 4097, false, 1, 1},        // two segments
		{4, 1 << 20, false, 16, 5},    // all 128 warps
		{1000, 1 << 20, false, 16, 0}, // more than there are warps
		{4, 16 << 20, true, 16, 5},    // of 20 processors: 128 of 160 warps
		{5, 16 << 20, true, 20, 5},
		{longPieces, 4096, true, 20, 0},
	} {
		k := kernel{pieces: c.pieces, most: c.most, local: c.local, processors: 20}
		blocks, shift := k.grid()
		assert.Equal(t, []int{c.blocks, c.shift}, []int{blocks, shift}, "%+v", c)
	}
}

// What the driver refuses of launches is copied otherwise; a refusal for good is not tried again.
func TestRefusedLaunches(t *testing.T) {
	for code, tries := range map[result]int{notSupported: 1, invalidValue: maxRefusals} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { refusedLaunches(t, code, tries) })
	}
	for code := firstCapture; code <= lastCapture; code++ {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newRigWith(t, linkKernel)
			r.fake.fail[fnLaunchKernel] = code
			_, err := r.Submit(r.a, r.onboard(1, 3, 5, 7, 9))
			require.ErrorIs(t, err, ErrCapturing)
			assert.Zero(t, r.fake.calls[fnMemcpyAsync]+r.fake.calls[fnMemcpyBatchAsync])
		})
	}
}

func refusedLaunches(t *testing.T, code result, tries int) {
	r := newRigWith(t, linkKernel)
	assert.Equal(t, "kernel", r.Info().Local)
	for i := range 16 {
		r.HostBytes(r.pool, messages.PageID(i))[7] = byte(i + 1)
	}
	r.fake.fail[fnLaunchKernel] = code
	for range 2 * maxRefusals {
		r.submit(r.a, r.onboard(1, 3, 5, 7, 9))
	}
	assert.Equal(t, tries, r.fake.calls[fnLaunchKernel])
	assert.Empty(t, r.Info().Local)
	out := &gpu.Batch{}
	for i := range 5 {
		out.Copies = append(out.Copies,
			gpu.Copy{Bytes: 4096, Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(2*i + 1)},
				Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: messages.PageID(10 + i)}})
	}
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, out)))
	for i := range 5 {
		assert.EqualValues(t, 2*i+2, r.HostBytes(r.pool, messages.PageID(10+i))[7])
	}
}

// A copy that is refused behind a launch: copies behind it may be in the launch, and are over
// when the caller is told that they are not made.
func TestRefusedCopyBehindALaunch(t *testing.T) {
	r := newRigWith(t, linkKernel, fnMemcpyBatchAsync)
	large, err := r.CreatePool(gpu.PoolSpec{Name: "large", PageBytes: 128 << 10, DevicePages: 2,
		HostPages: 2})
	require.NoError(t, err)
	b := &gpu.Batch{Copies: []gpu.Copy{{Src: gpu.Slot{Pool: large},
		Dst: gpu.Slot{Pool: large, Tier: messages.Secondary}, Bytes: 128 << 10}}}
	b.Copies = append(b.Copies, r.onboard(1, 3, 5, 7).Copies...)
	r.fake.failCopy[gpu.Offload], r.fake.lazy = 2, true
	_, err = r.Submit(r.a, b)
	var failed *gpu.CopyError
	require.ErrorAs(t, err, &failed)
	assert.Zero(t, failed.Index)
	assert.Equal(t, 1, r.fake.calls[fnLaunchKernel])
	for _, st := range r.fake.streams {
		for _, o := range st.queue {
			assert.NotEqual(t, opCopy, o.kind, "a copy is under way that the caller was told is not")
		}
	}
}

// Of two launches the second is refused because of a capture: the ticket covers the first.
func TestSecondLaunchRefused(t *testing.T) {
	r := newRig(t)
	p, err := r.CreatePool(gpu.PoolSpec{Name: "many", PageBytes: 256,
		DevicePages: 4 * (longPieces + 1)})
	require.NoError(t, err)
	r.fake.fail[fnLaunchKernel], r.fake.failAfter[fnLaunchKernel], r.fake.lazy = firstCapture, 1, true
	ticket, err := r.Submit(r.a, &gpu.Batch{Copies: scattered(p, gpu.Local, longPieces+1, 256, 0)})
	require.ErrorIs(t, err, ErrCapturing)
	require.False(t, r.Done(ticket))
	require.NoError(t, r.Sync(context.Background(), ticket))
	r.fake.lazy = false
}

// Refusals count in a row, and only those whose copies are taken otherwise.
func TestRefusalsOfLaunchesCountInARow(t *testing.T) {
	r := newRigWith(t, linkKernel)
	for range 3 {
		r.fake.fail[fnLaunchKernel] = invalidValue
		for range maxRefusals - 1 {
			r.submit(r.a, r.onboard(1, 3, 5, 7))
		}
		delete(r.fake.fail, fnLaunchKernel)
		r.submit(r.a, r.onboard(1, 3, 5, 7))
	}
	for range 2 * maxRefusals { // the launch and the single copy
		r.fake.failCopy[gpu.Onboard] = 1
		_, err := r.Submit(r.a, r.onboard(1, 3, 5, 7))
		require.ErrorIs(t, err, gpu.ErrCopyFailed)
	}
	assert.Equal(t, "kernel", r.Info().Local)
}

// The write that occupies a stream is covered by a ticket also when no copy is: a later stream
// in the same place must not find it in its counter.
func TestOccupyingWriteIsCovered(t *testing.T) {
	r := newRig(t, fnMemcpyBatchAsync)
	const theirs = 0x51
	r.fake.streams[theirs] = &fakeStream{context: fakeContext}
	s, err := r.External("compute", theirs)
	require.NoError(t, err)
	for range 5 {
		ticket, err := r.Fence(s)
		require.NoError(t, err)
		require.NoError(t, r.Sync(context.Background(), ticket))
	}
	r.fake.lazy, r.fake.failCopy[gpu.Onboard] = true, 1
	writes := r.fake.calls[fnStreamWriteValue64]
	ticket, err := r.Submit(s, r.onboard(1, 3))
	require.ErrorIs(t, err, gpu.ErrCopyFailed)
	require.Equal(t, writes+2, r.fake.calls[fnStreamWriteValue64],
		"streams of the host are occupied, too")
	require.ErrorIs(t, r.DestroyStream(s), gpu.ErrInUse)
	require.NoError(t, r.Sync(context.Background(), ticket))
	require.NoError(t, r.DestroyStream(s))
	delete(r.fake.streams, theirs)
}

// Close waits for what the device has queued on streams of the host, also if the host has
// destroyed them.
func TestCloseWaitsForStreamsOfTheHost(t *testing.T) {
	r := newRig(t)
	const theirs = 0x51
	r.fake.streams[theirs] = &fakeStream{context: fakeContext}
	s, err := r.External("compute", theirs)
	require.NoError(t, err)
	r.fake.lazy = true
	_, err = r.Submit(s, &gpu.Batch{Copies: scattered(r.pool, gpu.Local, 4, 4096, 0)})
	require.NoError(t, err)
	queued := r.fake.streams[theirs]
	require.NotEmpty(t, queued.queue)
	require.NoError(t, r.Close())
	assert.Empty(t, queued.queue)
	delete(r.fake.streams, theirs)
}

// Info may be asked for while the device is closed.
func TestInfoBesideClose(t *testing.T) {
	d, _ := openFake(t)
	before := d.Info()
	var group sync.WaitGroup
	group.Go(func() {
		for range 100 {
			assert.Equal(t, before, d.Info())
		}
	})
	require.NoError(t, d.Close())
	group.Wait()
}

// What is merged is counted once more: four neighbours are one piece, too few for a launch.
func TestMergedPiecesAreCountedAgain(t *testing.T) {
	r := newRigWith(t, linkKernel)
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, r.onboard(7, 6, 5, 4))))
	assert.Zero(t, r.fake.calls[fnLaunchKernel])
	assert.Equal(t, 1, r.fake.calls[fnMemcpyAsync])
}

// Pieces within the device are not merged for the kernel: sorting them would gain nothing.
func TestPiecesWithinTheDeviceAreNotMerged(t *testing.T) {
	r := newRig(t)
	b := &gpu.Batch{}
	for i := range 4 {
		b.Copies = append(b.Copies, gpu.Copy{Bytes: 4096,
			Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(3 - i)},
			Dst: gpu.Slot{Pool: r.pool, Page: messages.PageID(11 - i)}})
	}
	r.fake.lazy = true
	ticket := r.submit(r.a, b)
	launched := 0
	for _, st := range r.fake.streams {
		for _, o := range st.queue {
			if o.launched {
				launched++
			}
		}
	}
	assert.Equal(t, 4, launched)
	require.NoError(t, r.Sync(context.Background(), ticket))
}

// The zeros of a batch are not written again by the next one.
func TestZerosAreWrittenOnce(t *testing.T) {
	r := newRig(t)
	fill(r.HostBytes(r.pool, 1), 9)
	page := gpu.Slot{Pool: r.pool, Page: 1}
	host := func(page messages.PageID) gpu.Slot {
		return gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: page}
	}
	r.submit(r.a, &gpu.Batch{Copies: []gpu.Copy{{Src: page, Dst: page, Bytes: 4096, Zero: true}}})
	r.submit(r.a, &gpu.Batch{Copies: []gpu.Copy{{Src: host(1), Dst: page, Bytes: 4096}}})
	require.NoError(t,
		r.Sync(context.Background(),
			r.submit(r.a, &gpu.Batch{Copies: []gpu.Copy{{Src: page, Dst: host(2), Bytes: 4096}}})))
	assert.EqualValues(t, 9, r.HostBytes(r.pool, 2)[77])
}

// A batch call that a capture refuses behind a launch: the ticket covers the launch.
func TestBatchRefusedBehindALaunch(t *testing.T) {
	r := newRig(t)
	b := r.onboard(1, 3)
	b.Copies = append(b.Copies, scattered(r.pool, gpu.Local, 4, 4096, 0)...)
	r.fake.fail[fnMemcpyBatchAsync], r.fake.lazy = firstCapture, true
	ticket, err := r.Submit(r.a, b)
	require.ErrorIs(t, err, ErrCapturing)
	require.Equal(t, 1, r.fake.calls[fnLaunchKernel])
	require.False(t, r.Done(ticket))
	require.NoError(t, r.Sync(context.Background(), ticket))
}
