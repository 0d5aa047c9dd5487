package fleet

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// Sizes of the benchmarks: prompts of 13 700 tokens in blocks of 512, which is the mean of
// the conversation trace, and of 16.
const (
	benchPrompts = 20_000
	benchBlocks  = 26 // of a prompt
)

// benchHash is the name of a block of the benchmarks.
func benchHash(prompt, block int) (h kvevents.Hash) {
	binary.BigEndian.PutUint64(h[len(h)-8:], uint64(prompt)<<20+uint64(block)+1)
	binary.BigEndian.PutUint64(h[:8], uint64(prompt)*0x9e3779b97f4a7c15)
	return h
}

// stored is the event that stores a prompt's blocks.
func stored(prompt, id int) kvevents.EventBatch {
	e := kvevents.Event{ID: uint64(id), Type: kvevents.EventStored}
	for b := range benchBlocks {
		e.Blocks = append(e.Blocks, kvevents.StoredBlock{Hash: benchHash(prompt, b),
			Tokens: make([]messages.Token, 1)})
	}
	return kvevents.EventBatch{Events: []kvevents.Event{e}, Next: uint64(id) + 1}
}

// heap is the live memory.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIndex measures what a router keeps of an engine and what following costs.
func BenchmarkIndex(b *testing.B) {
	for range b.N {
		before, m := heap(), events.NewMirror()
		for p := range benchPrompts {
			require.NoError(b, m.Follow(stored(p, p)))
		}
		b.ReportMetric(float64(heap()-before)/float64(m.Len()), "bytes/block")
		runtime.KeepAlive(m)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchPrompts*benchBlocks),
		"ns/block")
}

// BenchmarkRoute measures one decision between engines of which each has a part of the
// prompt, with the names of the prompt's blocks and without.
func BenchmarkRoute(b *testing.B) {
	pools := fullPool(b)
	for _, engines := range []int{10, 100, 1000} {
		prompt := make([]messages.Token, 512*benchBlocks+1)
		names, err := events.Names(messages.Prefix{Tokens: prompt}, 512)
		require.NoError(b, err)
		var members []*member
		for i := range engines {
			h := &host{mirror: events.NewMirror(), rig: &engine.Rig{Pools: pools}}
			e := kvevents.Event{Type: kvevents.EventStored}
			for n := range 1 + i%benchBlocks {
				e.Blocks = append(e.Blocks, kvevents.StoredBlock{Hash: names[n],
					Tokens: make([]messages.Token, 1)})
			}
			require.NoError(b, h.mirror.Follow(kvevents.EventBatch{Events: []kvevents.Event{e}}))
			members = append(members, newMember(i, h, h))
		}
		b.Run(fmt.Sprintf("engines=%d", engines), func(b *testing.B) {
			r := router{tokens: 512}
			for range b.N {
				f := flightOf(prompt)
				require.NoError(b, r.route(members, f))
				for _, m := range members {
					if m.flights[f.request] == f {
						m.start(f)
						delete(m.flights, f.request)
						m.send = m.send[:0]
					}
				}
			}
		})
	}
}

func fullPool(tb testing.TB) []windows.Pool {
	model := windows.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 2, DType: windows.FP8,
		MaxSeqLen: 1 << 20}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 512
	pools, err := windows.Pools(model, cache)
	require.NoError(tb, err)
	return pools
}
