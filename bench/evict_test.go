package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool"
)

// prefixPages is the pages that one sequence leaves behind, 4k tokens.
const prefixPages = 256

// cached is a pool whose pages all cache something.
type cached struct {
	pool   *pool.Pool
	take   protocol.PoolWork
	leave  protocol.PoolWork
	blocks []protocol.BlockID
	use    protocol.Use
}

// order says how the pages of a prefix lie in memory: adjoining, as a pool
// hands them out, or scattered over all of it, as nothing but chance could.
type order uint8

const (
	adjoining order = iota
	scattered
)

func newCached(pages int, o order) *cached {
	c := &cached{pool: pool.New(fmt.Sprintf("cached%d", pages), pages)}
	c.take.Ops = []protocol.PoolOp{{Kind: protocol.Take, N: pages}}
	c.pool.Do(&c.take)
	all := c.take.Ops[0].Pages
	if o == scattered {
		dice(8).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	c.leave.Ops = make([]protocol.PoolOp, 2)
	for len(all) > 0 {
		n := min(prefixPages, len(all))
		c.drop(all[:n:n])
		all = all[n:]
	}
	c.take.Ops = []protocol.PoolOp{{Kind: protocol.Take, N: prefixPages}}
	return c
}

// drop makes pages cache the blocks of their own numbers, and drops them. One
// prefix in eight is worth more than the others.
func (c *cached) drop(pages []messages.PageID) {
	c.blocks = c.blocks[:0]
	for _, p := range pages {
		c.blocks = append(c.blocks, protocol.BlockID(p))
	}
	c.use += 2 // as the coordinator does: a use and the one before it count as the same
	priority := messages.DefaultPriority
	if c.use%16 == 0 {
		priority = 80
	}
	c.leave.Ops[0] = protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages, Blocks: c.blocks,
		Priority: priority}
	c.leave.Ops[1] = protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: c.use}
	c.pool.Do(&c.leave)
}

// next takes the pages of a prefix from what is cached, and times that; then
// they are left again as the latest.
func (c *cached) next() time.Duration {
	op := &c.take.Ops[0]
	op.Pages, c.take.Victims = op.Pages[:0], c.take.Victims[:0]
	start := time.Now()
	c.pool.Do(&c.take)
	took := time.Since(start)
	if len(c.take.Victims) != prefixPages {
		panic(fmt.Sprintf("bench: %d victims for %d pages", len(c.take.Victims), prefixPages))
	}
	c.drop(op.Pages)
	return took
}

// BenchmarkEvict takes 256 pages from a pool that has none free. The floor is
// the same with ten thousand cached pages: the cost should not grow with them.
func BenchmarkEvict(b *testing.B) {
	for o, name := range [...]string{adjoining: "adjoining", scattered: "scattered"} {
		for _, pages := range []int{10_000, 100_000, 1_000_000, 10_000_000} {
			b.Run(fmt.Sprintf("%s/%d", name, pages), func(b *testing.B) {
				if quick() && pages > 1_000_000 {
					b.Skip("ten million pages are for full runs")
				}
				above, below := newCached(pages, order(o)), newCached(10_000, order(o))
				c := versus(b, above.next, below.next)
				require.Equal(b, pages, above.pool.Counts().Cached)
				b.ReportMetric(c.engine.quantile(0.5)/prefixPages, "ns/page")
			})
		}
	}
}
