package offloader

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

type waitRanking struct{ n uint64 }

func (*waitRanking) Now() int64                                          { return 0 }
func (*waitRanking) ByDepth() bool                                       { return false }
func (*waitRanking) Rank(f protocol.Features, last int64, _ int32) int32 { return int32(f.Wait) }
func (r *waitRanking) Await(f protocol.Features) protocol.Features {
	return protocol.Features{Wait: f.Wait&255 | int64(r.n)<<8}
}

// Waits, priorities, ends and displacements in any order leave the structure right.
func TestWaitsInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		const n = 120
		h := &hostPool{}
		h.init(PoolConfig{Name: "w", HostPages: n, Policy: evict.Forecast}, nil)
		rank := &waitRanking{}
		block := protocol.BlockID(0)
		fill := func() {
			for h.size > 0 {
				k := min(h.size, 1+r.IntN(20))
				f := uint64(r.IntN(200))
				for d := k - 1; d >= 0; d-- {
					p := h.takeFree()
					v := protocol.Victim{Block: block, Priority: messages.Priority(35 + 5*r.IntN(2)/2),
						Depth: int32(d)}
					h.setBlock(p, block)
					h.setFacts(p, &v,
						[]protocol.EvictedPiece{{End: 1, Features: protocol.Features{Wait: int64(f)},
							Last: int64(block) / 64}})
					block++
				}
			}
		}
		for step := range 300 {
			h.order.Policy().RankBy(rank)
			fill()
			switch r.IntN(4) {
			case 0, 1:
				for range 1 + r.IntN(10) {
					h.freePage(messages.PageID(h.order.First()))
				}
			case 2:
				p := messages.PageID(r.IntN(n))
				h.reprioritize(h.pages[p].block, messages.Priority(30+10*r.IntN(2)))
			}
			rank.n++
			pm := &protocol.PoolMove{Ranking: rank}
			from := r.IntN(n)
			for i := from; i < min(n, from+r.IntN(30)); i++ {
				if h.pages[i].state == sole {
					pm.Awaited = append(pm.Awaited, h.pages[i].block)
				}
			}
			h.await(pm)
			require.NoError(t, h.order.Check(), "seed %d step %d", seed, step)
			h.order.Policy().RankBy(nil)
		}
	}
}
