package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	ranked "github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/windows"
)

// quietRank is a device on which everything is done at once, as on the quiet device, but
// whose tickets have numbers: a group keeps those of every rank.
type quietRank struct {
	quietDevice
	queued uint64
}

// Submit numbers its tickets.
func (d *quietRank) Submit(s gpu.Stream, _ *gpu.Batch) (gpu.Ticket, error) {
	d.queued++
	return gpu.Ticket{Stream: s, Seq: d.queued}, nil
}

// Fence is the last ticket.
func (d *quietRank) Fence(s gpu.Stream) (gpu.Ticket, error) {
	return gpu.Ticket{Stream: s, Seq: d.queued}, nil
}

// BenchmarkRanks is what each further device of a group costs an engine: over a group
// against the same over one device. What the devices do takes no time, so all that is
// measured is processor time of the engine and the group. A stored prompt of 4k tokens
// comes back from host memory in three pools and displaces another: every admission has
// batches of copies on two streams. A step without copies does not reach the device.
func BenchmarkRanks(b *testing.B) {
	for _, ranks := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			members := make([]gpu.Device, ranks)
			for i := range members {
				members[i] = &quietRank{}
			}
			over, alone := newPaging(b, must(ranked.New(members...))), newPaging(b, &quietRank{})
			c := versus(b, timed(over.next), timed(alone.next))
			b.ReportMetric((c.engine.quantile(0.5)-c.floor.quantile(0.5))/float64(ranks), "ns/rank")
			require.Greater(b, over.onboarded(), int64(b.N), "every admission onboards")
		})
	}
}

// paging is an engine whose device holds a part of the prompts that it is asked for in
// turn.
type paging struct {
	*actors.Engine
	do        do
	sequences []*calls
	turn      int
}

const (
	pagingBlocks  = 256 // of a prompt
	pagingPrompts = 8
)

// newPaging leaves the prompts in an engine over a device.
func newPaging(b *testing.B, device gpu.Device) *paging {
	b.Helper()
	s := hybrid(0)
	config := actors.Config{Model: s.model(), Cache: s.cache(), Device: device}
	for range s.windows {
		config.Pages = append(config.Pages, windows.PageCounts{Primary: 3 * pagingBlocks,
			Secondary: 2 * pagingPrompts * pagingBlocks})
	}
	system := newSystem()
	p := &paging{Engine: must(actors.Spawn(system.Root, config))}
	b.Cleanup(func() {
		must(p.Close(context.Background()))
		system.Shutdown()
	})
	p.do = serve(p.Engine)
	for range pagingPrompts {
		l := newCalls(random(dice(uint64(len(p.sequences))), pagingBlocks*tokensPerBlock+1))
		l.store(p.do)
		p.sequences = append(p.sequences, l)
	}
	return p
}

// next asks for the prompt that was asked for longest ago.
func (p *paging) next() {
	l := p.sequences[p.turn%pagingPrompts]
	p.turn++
	l.visit(p.do)
}

// onboarded is the number of pages that have come back from host memory.
func (p *paging) onboarded() (pages int64) {
	for _, pool := range must(p.Stats(context.Background())).Pools {
		pages += pool.Onboarded
	}
	return pages
}
