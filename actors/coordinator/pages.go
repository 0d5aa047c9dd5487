package coordinator

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/inspect"
)

// pageCounts is what every pool and the offloader said last of the pages that they
// have. No one else changes those, so the counts hold until the next answer, and
// the coordinator knows before it takes a page that the page will be there.
type pageCounts struct {
	device    []protocol.PoolPages
	host      []inspect.TierPages
	sequences *sequence.Arena // for the reserves
	config    *Config         // for the names
}

func newPageCounts(config *Config, sequences *sequence.Arena) *pageCounts {
	n := len(config.Pools)
	c := &pageCounts{device: make([]protocol.PoolPages, n), host: make([]inspect.TierPages, n),
		sequences: sequences, config: config}
	// As every pool and the offloader say it themselves before the first message.
	for p, count := range config.Counts {
		c.device[p].TierPages = inspect.TierPages{Total: count.Primary, Free: count.Primary}
		c.host[p] = inspect.TierPages{Total: count.Secondary, Free: count.Secondary}
	}
	return c
}

// available is the pages of a pool that may still be taken:
//
//	total − held by sequences and pins − reserved for chunks of prompts
//
// Pages that only a prompt in chunks holds under its reserve are not held. The
// result is below 0 when others claim what a prompt in chunks has taken itself.
func (c *pageCounts) available(p int) int {
	return c.device[p].Total - c.device[p].Held - c.reserved(p)
}

// reserved is the pages that prompts in chunks have reserved in a pool.
func (c *pageCounts) reserved(p int) int { return int(c.sequences.Reserved(p)) }

// needed is the fewest pages that a pool can have now.
// Pages that a prompt in chunks has taken are used and not held: both bounds are needed.
func (c *pageCounts) needed(p int) int {
	return max(c.device[p].Held+c.reserved(p), c.device[p].Used)
}

// evictable is the pages of a pool that a take could get at all. It has free and cached pages,
// without regard to reserves, which available takes off.
func (c *pageCounts) evictable(p int) int { return c.device[p].Free + c.device[p].Cached }

// hasHost tells whether a pool has pages in host memory.
func (c *pageCounts) hasHost(p int) bool { return c.host[p].Total > 0 }

// check verifies that the states of the pages of each pool add up.
func (c *pageCounts) check() error {
	var problems []error
	for p, n := range c.device {
		if n.Used+n.Cached+n.Free != n.Total {
			problems = append(problems, fmt.Errorf("pool %s: %d used + %d cached + %d free of %d pages",
				c.config.Pools[p].Name, n.Used, n.Cached, n.Free, n.Total))
		}
		// Covered pages are used and not held, never the other way round.
		if n.Held > n.Used {
			problems = append(problems, fmt.Errorf("pool %s: %d pages are held of %d used",
				c.config.Pools[p].Name, n.Held, n.Used))
		}
		if h := c.host[p]; h.Used+h.Cached+h.Free != h.Total {
			problems = append(problems, fmt.Errorf("pool %s: %d used + %d cached + %d free of %d host pages",
				c.config.Pools[p].Name, h.Used, h.Cached, h.Free, h.Total))
		}
	}
	return errors.Join(problems...)
}

// draw gives the counts of one pool on a line.
func (c *pageCounts) draw(p int) string {
	n, h := c.device[p], c.host[p]
	s := fmt.Sprintf("pool %s: %d used, %d cached, %d free, %d held, %d reserved",
		c.config.Pools[p].Name, n.Used, n.Cached, n.Free, n.Held, c.reserved(p))
	if h.Total > 0 {
		s += fmt.Sprintf("; host: %d used, %d cached, %d free", h.Used, h.Cached, h.Free)
	}
	return s + "\n"
}
