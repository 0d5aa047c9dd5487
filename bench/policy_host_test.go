package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/pool/evict"
)

// hostDevicePages is how many device pages the rows of host memory have.
const hostDevicePages = 2048

// displacing is a full pool whose victims go to full host memory. No prompt is used again, so every
// page that is taken displaces one.
type displacing struct {
	evicting *evicting
	host     *offloader.Offloader
	move     protocol.Move
	unused   []protocol.BlockID // that neither tier has
	caches   []protocol.BlockID // by device page
	seq      uint64
	pages    int  // displaced by the last move
	all      bool // the plan of the copies counts, not the decisions alone
}

func newDisplacing(forecast, all bool, pages, prompt int) *displacing {
	policy := evict.Options{Name: evict.LRU, Seed: 1, Span: 1}
	if forecast {
		policy.Name = evict.Forecast
	}
	p := pool.NewWith(policy.Name, hostDevicePages, policy)
	d := &displacing{all: all, host: offloader.New(offloader.Config{
		Pools: []offloader.PoolConfig{{
			Name: "host", HostPages: pages, Policy: policy.Name, PageBytes: 1 << 20, TokensPerBlock: 32,
		}},
		Passed: func(messages.Ticket) bool { return true },
	})}
	d.move.Pools = make([]protocol.PoolMove, 1)
	for b := range protocol.BlockID(hostDevicePages + pages + prompt) {
		d.unused = append(d.unused, b)
	}
	for range hostDevicePages {
		d.caches = append(d.caches, protocol.NoBlock)
	}
	d.evicting = newEvicting(p, prompt, false, false)
	for range 2*pages/prompt + scaled(settledRequests)/10 {
		d.next()
	}
	return d
}

// next takes the pages of a prompt, and tells how long host memory took over those that were
// evicted for it.
func (d *displacing) next() time.Duration {
	e := d.evicting
	e.next()
	pm, w := &d.move.Pools[0], &e.take
	d.move.Stamp++
	pm.Victims, pm.Pieces, pm.Ranking = w.Victims, w.Pieces, w.Ranking
	// The pool knows blocks by its own numbers, of which each page has one.
	for i := range pm.Victims {
		v := &pm.Victims[i]
		if v.Block = d.caches[v.Page]; v.Block == protocol.NoBlock {
			v.Block = d.unnamed()
		}
	}
	start := time.Now()
	d.host.Begin(&d.move)
	took := time.Since(start)
	start = time.Now()
	for s := d.host.Next(); s != nil; s = d.host.Next() {
		d.seq++
		d.host.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: d.seq}, -1)
	}
	d.host.Finish()
	if d.all {
		took += time.Since(start)
	}
	d.pages = 0
	for i := range pm.Outcomes {
		if b := pm.Outcomes[i].Displaced; b != protocol.NoBlock {
			d.unused = append(d.unused, b)
			d.pages++
		}
	}
	for _, p := range e.take.Ops[0].Pages {
		d.caches[p] = d.unnamed()
	}
	return took
}

// unnamed is a block that neither tier has.
func (d *displacing) unnamed() protocol.BlockID {
	b := d.unused[len(d.unused)-1]
	d.unused = d.unused[:len(d.unused)-1]
	return b
}

// BenchmarkPolicyDisplace gives the victims of a full pool to full host memory: what decides which
// contents go on there and which are displaced, and with the copies that are planned and recorded
// for them.
func BenchmarkPolicyDisplace(b *testing.B) {
	for _, part := range []string{"decide", "all"} {
		for _, prompt := range []int{16, 256} {
			for _, pages := range []int{10_000, 100_000} {
				b.Run(fmt.Sprintf("%s/prompt=%d/%d", part, prompt, pages), func(b *testing.B) {
					if quick() && pages > 10_000 {
						b.Skip("large host memory is for full runs")
					}
					above := newDisplacing(true, part == "all", pages, prompt)
					below := newDisplacing(false, part == "all", pages, prompt)
					c := versus(b, above.next, below.next)
					require.Equal(b, prompt, above.pages)
					require.Equal(b, prompt, below.pages)
					b.ReportMetric(c.engine.quantile(0.5)/float64(prompt), "ns/page")
				})
			}
		}
	}
}
