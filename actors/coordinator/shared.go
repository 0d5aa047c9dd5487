package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
)

// poolRange is some pools in the order of their ids: the self pools, the cross pools,
// or all.
type poolRange struct{ first, end int }

// shared is what transactions have in common. It has no methods: each part has its
// own, and holds its own relations.
type shared struct {
	config    *Config
	all       poolRange
	self      poolRange // matched by the tokens of the decoder
	cross     poolRange // matched by the input of the encoder; none without one
	kernel    *kernel
	sequences *sequence.Arena
	counts    *pageCounts // what pools and offloader said last
	out       *outgoing   // work on its way to tree, pools and offloader
	pins      *pins
	stats     *statistics
	uses      *useClock
	waiting   *admissionQueue // admissions that wait for pages
	pressure  *poolPressure   // which pool's shortage costs how much
}

// newShared makes the parts of a coordinator of empty pools.
func newShared(config *Config, port Port) *shared {
	n := len(config.Pools)
	p := &shared{
		config: config, kernel: &kernel{port: port}, sequences: sequence.NewArena(config.Pools, config.TokensPerBlock, config.FirstGeneration),
		pins: newPins(n), stats: newStatistics(config), uses: &useClock{},
	}
	p.all, p.self, p.cross = poolRange{0, n}, poolRange{0, config.selfPools()}, poolRange{config.selfPools(), n}
	p.counts = newPageCounts(config, p.sequences)
	p.waiting = &admissionQueue{limit: config.WaitingRoom, port: port, counts: p.counts}
	p.pressure = newPoolPressure(config, p.counts, p.stats)
	p.out = &outgoing{
		kernel: p.kernel, counts: p.counts, pins: p.pins, stats: p.stats, reuse: config.Reuse, stored: p.waiting.noteStored, nextExpiry: protocol.NoExpiry,
		pools: poolBatches{kernel: p.kernel, counts: p.counts}, move: moveBatch{kernel: p.kernel, counts: p.counts},
	}
	p.out.renew()
	return p
}
