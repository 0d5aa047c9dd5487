//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
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
		// Pages of odd sizes have pieces without alignment; those of 96 KiB and of 2 MiB go by both ways.
		page := []int64{256, 96 << 10, 1000, 4096, 12288, 40000}[round%6]
		pages := int(min(1500, 12<<20/page))
		checkMoves(t, d, rng, page, pages)
	}
}

// checkMoves moves random parts of random pages of one pool, in three batches that follow one another.
func checkMoves(t *testing.T, d *Device, rng *rand.Rand, page int64, pages int) {
	p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: pages, HostPages: pages})
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
			b.Copies = append(b.Copies, gpu.Copy{Src: slot(from, sources[i]), Dst: slot(to, targets[i]), SrcOffset: so, DstOffset: do, Bytes: length})
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
		out.Copies = append(out.Copies, gpu.Copy{Src: slot(messages.Primary, i), Dst: slot(messages.Secondary, pages-1-i), Bytes: page})
	}
	last, err = d.Submit(s, out)
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background(), last))
	for i := range pages {
		require.Equal(t, device[i], d.HostBytes(p, messages.PageID(pages-1-i)), "device page %d of %d bytes", i, page)
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
			assert.NotZero(t, k.calls[fnMemcpyBatchAsync]+k.calls[fnMemcpyAsync], "large pieces go another way")
		})
	}
}

// A device without the kernel, or whose driver refuses it, moves small pieces as others.
func TestWithoutKernel(t *testing.T) {
	for name, prepare := range map[string]func(k *fake){
		"module":   func(k *fake) { k.fail[fnModuleLoadData] = 218 }, // the text is not taken
		"function": func(k *fake) { k.fail[fnModuleGetFunction] = 500 },
	} {
		t.Run(name, func(t *testing.T) {
			k, table := newFake(1)
			prepare(k)
			d, err := open(table, linkKernel)
			require.NoError(t, err)
			assert.Empty(t, d.Info().Local)
			kernelBeside(t, d)
			assert.Zero(t, k.calls[fnLaunchKernel])
			require.NoError(t, d.Close())
			assert.Equal(t, k.calls[fnModuleLoadData]-1+min(1, k.calls[fnModuleGetFunction]), k.calls[fnModuleUnload], "modules")
		})
	}
	_, table := newFake(1)
	d, err := open(table, Options{NoKernel: true})
	require.NoError(t, err)
	assert.Empty(t, d.Info().Local)
	require.NoError(t, d.Close())
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
		out.Copies = append(out.Copies, gpu.Copy{Bytes: 4096, Src: gpu.Slot{Pool: r.pool, Page: messages.PageID(2*i + 1)},
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
	large, err := r.CreatePool(gpu.PoolSpec{Name: "large", PageBytes: 128 << 10, DevicePages: 2, HostPages: 2})
	require.NoError(t, err)
	b := &gpu.Batch{Copies: []gpu.Copy{{Src: gpu.Slot{Pool: large}, Dst: gpu.Slot{Pool: large, Tier: messages.Secondary}, Bytes: 128 << 10}}}
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
