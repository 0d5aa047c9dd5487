package serve

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// maxProblems bounds the sentences that a Compute keeps.
const maxProblems = 32

// Compute is the host's compute stream: it collects the reads and writes of one
// step and runs them as one kernel, checks before writes.
type Compute struct {
	rig      *engine.Rig
	stream   gpu.Stream
	pools    []gpu.Pool // by PoolID
	waits    []gpu.Ticket
	checks   []touch
	writes   []touch
	accesses [2][]gpu.Access // read, written

	mu sync.Mutex // of Wrong and Problems, inside a kernel
	// Last is the ticket of the last kernel, which has passed, and Busy the simulated time
	// of all kernels.
	Last     gpu.Ticket
	Busy     time.Duration
	Verified int64    // pages checked
	Wrong    int64    // of these, pages with wrong bytes
	Problems []string // the first of them
}

// touch is a run of tokens inside one page.
type touch struct {
	slot  gpu.Slot
	pool  int
	first int          // index in the page
	links []host.Chain // the tokens' chain
	block int          // in the prefix, for reports
}

// NewCompute makes a stream for kernels of the host.
func NewCompute(rig *engine.Rig, name string) (*Compute, error) {
	stream, err := rig.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &Compute{rig: rig, stream: stream, pools: rig.DevicePools()}, nil
}

// Wait makes the kernel wait for tickets.
func (c *Compute) Wait(tickets []gpu.Ticket) {
	for _, t := range tickets {
		c.wait(t)
	}
}

// wait keeps the last ticket of each stream.
func (c *Compute) wait(t gpu.Ticket) {
	for i, known := range c.waits {
		if known.Stream == t.Stream {
			c.waits[i].Seq = max(known.Seq, t.Seq)
			return
		}
	}
	if !t.IsZero() {
		c.waits = append(c.waits, t)
	}
}

// Check makes the kernel compare the KV of the tokens from the start of a
// prefix, in every page that the tables name.
func (c *Compute) Check(links []host.Chain, tables [][]messages.PageID) {
	c.checks = c.touch(c.checks, links, 0, tables)
}

// Write makes the kernel write the KV of the tokens [from, len(links)).
func (c *Compute) Write(links []host.Chain, from int, tables [][]messages.PageID) {
	c.writes = c.touch(c.writes, links, from, tables)
}

func (c *Compute) touch(
	list []touch, links []host.Chain, from int, tables [][]messages.PageID,
) []touch {
	tokens := c.rig.TokensPerBlock
	for p, table := range tables[:len(c.rig.Pools)] {
		for at := from; at < len(links); {
			block := at / tokens
			end := min(len(links), (block+1)*tokens)
			if page := table[block]; page != messages.NoPage {
				list = append(list, touch{
					slot: gpu.Slot{Pool: c.pools[p], Page: page},
					pool: p, first: at - block*tokens, links: links[at:end], block: block,
				})
			}
			at = end
		}
	}
	return list
}

// Run launches the kernel, which lasts as given, and waits for its end.
func (c *Compute) Run(ctx context.Context, lasts time.Duration) error {
	for i, list := range [][]touch{c.checks, c.writes} {
		c.accesses[i] = c.accesses[i][:0]
		for _, t := range list {
			c.accesses[i] = append(c.accesses[i], gpu.Access{Slot: t.slot})
		}
	}
	ticket, err := c.rig.Launcher.Launch(c.stream, gpu.Kernel{
		Label: "step", Waits: c.waits, Reads: c.accesses[0], Writes: c.accesses[1],
		Nanos: int64(lasts), RunRank: c.kernel,
	})
	if err != nil {
		return err
	}
	if err := c.rig.Device.Sync(ctx, ticket); err != nil {
		return err
	}
	c.Last = ticket
	c.Busy += lasts
	c.waits, c.checks, c.writes = c.waits[:0], c.checks[:0], c.writes[:0]
	return nil
}

// kernel checks, then writes, on one rank. The pages are independent of one another, so all
// processors share them.
func (c *Compute) kernel(rank int, bytes gpu.PageBytes) {
	layouts := c.rig.Layouts[rank]
	c.verified(len(c.checks))
	spread(c.checks, func(t *touch) {
		if err := layouts[t.pool].Verify(bytes(t.slot), t.first, t.links...); err != nil {
			c.report(t, err)
		}
	})
	spread(c.writes, func(t *touch) {
		layouts[t.pool].Write(bytes(t.slot), t.first, t.links...)
	})
}

// verified counts pages: two ranks may run the kernel at the same time.
func (c *Compute) verified(pages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Verified += int64(pages)
}

// fewPages is up to how many pages the goroutines would cost more than they save.
const fewPages = 32

// spread does something with every touch, on all processors if there are many.
func spread(list []touch, do func(*touch)) {
	parts := min(runtime.GOMAXPROCS(0), len(list)/fewPages)
	if parts < 2 {
		for i := range list {
			do(&list[i])
		}
		return
	}
	var all sync.WaitGroup
	for part := range parts {
		all.Go(func() {
			for i := part * len(list) / parts; i < (part+1)*len(list)/parts; i++ {
				do(&list[i])
			}
		})
	}
	all.Wait()
}

// report notes a page that is not what it should be, up to the first wrong token.
func (c *Compute) report(t *touch, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Wrong++
	if len(c.Problems) < maxProblems {
		c.Problems = append(c.Problems, fmt.Sprintf("pool %s, page %d, reused for block %d: %v",
			c.rig.Pools[t.pool].Name, t.slot.Page, t.block, err))
	}
}
