//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// TestSharedEngine is the example of TestSharedPool with an engine in between: the
// engine has the pool and says which pages a prompt has got, the host computes into
// them and announces them, and the other process reads what was computed. It needs a
// driver: hardware, or the imitation of ctest.
func TestSharedEngine(t *testing.T) {
	needDriver(t)
	d := openDriver(t)
	defer func() { require.NoError(t, d.Close()) }()
	conn, ended := startReader(t)
	s := &server{owner: owner{t: t, d: d, conn: conn}}
	s.open()
	ctx := context.Background()

	first := s.prompt(100, 2)
	s.compute(first, 7, true)
	again := s.prompt(100, 2)
	require.Equal(t, 32, again.Reused(), "a block of the pages that the other process has read")
	require.Equal(t, first.Tables()[0][0][0], again.Tables()[0][0][0])
	s.compute(again, 8, false)

	_, err := s.engine.Resize(ctx, []int{20})
	require.NoError(t, err)
	long := s.prompt(200, 12)
	require.Greater(t, slices.Max(long.Tables()[0][0]), int32(8), "it has pages in a new chunk")
	s.compute(long, 9, true)

	// The other process leaves the pages that go before the engine takes them away.
	for _, q := range []*kvactor.Sequence{first, again, long} {
		require.NoError(t, q.Release(ctx, kvactor.Ticket{}))
	}
	s.tell(notice{Shrunk: 6})
	_, err = s.engine.Resize(ctx, []int{6})
	require.NoError(t, err)
	last := s.prompt(300, 3)
	s.compute(last, 10, true)
	require.NoError(t, last.Release(ctx, kvactor.Ticket{}))

	s.send(notice{Goodbye: true})
	require.NoError(t, ended())
	require.NoError(t, s.event.Close())
	leaked, err := s.engine.Close(ctx)
	require.NoError(t, err)
	require.Zero(t, leaked)
}

// server is an owner whose pool is an engine's.
type server struct {
	owner
	engine *kvactor.Engine
	made   gpu.Pool // stands for what kernels compute
}

func (s *server) open() {
	model := kvactor.Model{Layers: 32, KVHeads: []int{8}, HeadDim: 128, DType: kvactor.Float16,
		MaxSeqLen: 4096}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 32
	var err error
	s.engine, err = kvactor.Open(kvactor.Config{
		Model: model, Cache: cache, Device: s.d,
		Pages:  []kvactor.PageCounts{{Primary: 8, Secondary: 2}},
		Memory: []kvactor.PoolMemory{{Shared: true}},
	})
	require.NoError(s.t, err)
	s.pool = s.engine.DevicePools()[0]
	s.made, err = s.d.CreatePool(gpu.PoolSpec{Name: "made", PageBytes: sharedPage, HostPages: 1})
	require.NoError(s.t, err)
	s.stream, err = s.d.NewStream("compute")
	require.NoError(s.t, err)
	s.event, err = s.d.NewSharedEvent()
	require.NoError(s.t, err)
}

// prompt admits a prompt of so many pages, the last of which is not full.
func (s *server) prompt(from kvactor.Token, pages int) *kvactor.Sequence {
	tokens := make([]kvactor.Token, 32*pages-8)
	for i := range tokens {
		tokens[i] = from + kvactor.Token(i)
	}
	q, err := s.engine.Admit(context.Background(), kvactor.AdmitRequest{Tokens: tokens})
	require.NoError(s.t, err)
	return q
}

// compute writes the pages that a sequence has not reused, commits them, and
// announces the last one behind the work that writes it.
func (s *server) compute(q *kvactor.Sequence, value byte, export bool) {
	s.t.Helper()
	fill(s.d.HostBytes(s.made, 0), value)
	b := &gpu.Batch{Label: "compute", Waits: q.Ready()}
	table := q.Tables()[0][0]
	for _, page := range table[q.Computed()/32:] {
		b.Copies = append(b.Copies, gpu.Copy{Bytes: sharedPage,
			Src: gpu.Slot{Pool: s.made, Tier: messages.Secondary}, Dst: gpu.Slot{Pool: s.pool, Page: page}})
	}
	done, err := s.d.Submit(s.stream, b)
	require.NoError(s.t, err)
	require.NoError(s.t, s.event.Record(s.stream))
	require.NoError(s.t, q.Commit(context.Background(), q.Len(), done))
	s.tell(notice{Page: int(table[len(table)-1]), Byte: value, Event: s.event.Handle, Export: export})
}
