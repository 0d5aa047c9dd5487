package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// bench is a simulated device under the hazard checker, with one pool.
type bench struct {
	t       *testing.T
	sim     *sim.Device
	dev     *check.Device
	compute gpu.Stream
	copies  gpu.Stream
	pool    gpu.Pool
	writer  *Writer
}

func newBench(t *testing.T, seed int64) *bench {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Seed: seed})
	require.NoError(t, err)
	b := &bench{t: t, sim: device, dev: check.Wrap(device, check.Options{})}
	t.Cleanup(func() { _ = b.dev.Close() })
	b.compute, err = b.dev.NewStream("compute")
	require.NoError(t, err)
	b.copies, err = b.dev.NewStream("copies")
	require.NoError(t, err)
	b.pool, err = b.dev.CreatePool(gpu.PoolSpec{Name: small.Name, PageBytes: small.PageBytes(),
		DevicePages: 4, HostPages: 2})
	require.NoError(t, err)
	b.writer = NewWriter(WriterConfig{
		Launcher: b.dev, Stream: b.compute, Pools: []gpu.Pool{b.pool},
		Layouts: []Layout{NewLayout(small)}, NanosPerToken: 1000,
	})
	return b
}

func (b *bench) launch(s Step) gpu.Ticket {
	b.t.Helper()
	ticket, err := b.writer.Launch(s)
	require.NoError(b.t, err)
	return ticket
}

// partial copies the first tokens of device page 0 into page 1, as the engine
// does: a piece for each layer, K or V, and head.
func (b *bench) partial(tokens int, waits ...gpu.Ticket) gpu.Ticket {
	b.t.Helper()
	const row, run = 6, 24
	batch := gpu.Batch{Label: "partial", Waits: waits}
	for piece := range int64(8) {
		batch.Copies = append(batch.Copies, gpu.Copy{
			Src: gpu.Slot{Pool: b.pool}, Dst: gpu.Slot{Pool: b.pool, Page: 1},
			SrcOffset: piece * run, DstOffset: piece * run, Bytes: int64(tokens) * row,
		})
	}
	ticket, err := b.dev.Submit(b.copies, &batch)
	require.NoError(b.t, err)
	return ticket
}

// waits says which of the two waits of a scene are there.
type waits struct{ forWrite, forCopy bool }

// scene writes a block, copies its first 3 tokens and goes on from there.
func (b *bench) scene(w waits) (sound bool) {
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 4)})
	other := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 9)})
	written := b.launch(Step{Writes: []Span{{Chains: chains, To: 4, Table: Table{{0}}}}})
	if !w.forWrite {
		written = gpu.Ticket{}
	}
	copied := b.partial(3, written)
	if !w.forCopy {
		copied = gpu.Ticket{}
	}
	b.launch(Step{
		Waits:  []gpu.Ticket{copied},
		Reads:  []Span{{Chains: other, To: 3, Table: Table{{1}}}},
		Writes: []Span{{Chains: other, From: 3, To: 4, Table: Table{{1}}}},
	})
	b.sim.Drain()
	inspector := Inspector{Launcher: b.sim, Stream: b.compute, Drain: b.sim.Drain}
	verifier := Verifier{
		Layouts: []Layout{NewLayout(small)},
		Read: func(_ messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
			return inspector.Bytes(gpu.Slot{Pool: b.pool, Tier: tier, Page: page})
		},
	}
	pages, problems := verifier.Verify(Claims{Sequences: []Held{
		{Name: "A", Computed: 4, Beams: [][]Chain{chains}, Tables: messages.Tables{{{0}}}},
		{Name: "B", Computed: 4, Beams: [][]Chain{other}, Tables: messages.Tables{{{1}}}},
	}})
	require.Equal(b.t, 2, pages)
	problems = append(problems, b.writer.Problems()...)
	return len(problems) == 0 && b.dev.Count() == 0
}

// The host's kernels and a partial copy, in order, leave right bytes and no
// hazard; without either wait something is seen, whatever the schedule.
func TestWritersOnTheSimulatedDevice(t *testing.T) {
	for seed := range int64(10) {
		assert.True(t, newBench(t, seed).scene(waits{forWrite: true, forCopy: true}), "seed %d", seed)
		assert.False(t, newBench(t, seed).scene(waits{forCopy: true}),
			"seed %d: the copy does not wait for the kernel", seed)
		assert.False(t, newBench(t, seed).scene(waits{forWrite: true}),
			"seed %d: the kernel does not wait for the copy", seed)
	}
}

func TestInspectorKnowsNoPageThatIsNotThere(t *testing.T) {
	b := newBench(t, 1)
	inspector := Inspector{Launcher: b.sim, Stream: b.compute, Drain: b.sim.Drain}
	assert.Nil(t, inspector.Bytes(gpu.Slot{Pool: b.pool, Page: 4}))
	assert.Len(t, inspector.Bytes(gpu.Slot{Pool: b.pool, Page: 3}), int(small.PageBytes()))
	assert.Len(t, inspector.Bytes(gpu.Slot{Pool: b.pool, Tier: messages.Secondary, Page: 1}),
		int(small.PageBytes()))
}
