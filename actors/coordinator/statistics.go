package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/inspect"
)

// statistics counts what happened since the engine started.
// Counters change where the answer of an actor is taken over, so work that never reached
// its actor is not counted. A request that is repeated after a failure counts what it does
// each time: the counters say what the engine has done, not what hosts have asked.
type statistics struct {
	inspect.Stats
	pageBytes []int64 // by pool
}

func newStatistics(config *Config) *statistics {
	s := &statistics{}
	for p := range config.Pools {
		s.Pools = append(s.Pools, inspect.PoolStats{Name: config.Pools[p].Name})
		s.pageBytes = append(s.pageBytes, config.Pools[p].PageBytes())
	}
	return s
}

// pool gives the counters of one pool.
func (s *statistics) pool(p int) *inspect.PoolCounters { return &s.Pools[p].PoolCounters }

// evicted tells whether any contents have been evicted.
func (s *statistics) evicted() bool {
	for p := range s.Pools {
		if s.Pools[p].Evicted+s.Pools[p].Dropped > 0 {
			return true
		}
	}
	return false
}

// allocated counts pages that were taken, for whatever purpose.
func (s *statistics) allocated(p, pages int) { s.pool(p).AllocatedPages += int64(pages) }

// appended counts pages that an append has taken.
func (s *statistics) appended(p, pages int) {
	s.allocated(p, pages)
	s.AppendedPages += int64(pages)
}

// offloaded counts a victim whose contents go on in host memory.
func (s *statistics) offloaded(p int, what *protocol.Outcome) {
	counters := s.pool(p)
	counters.Offloaded++
	// An offload of contents that host memory had already costs no copy.
	if what.Dirty {
		counters.DirtyTakes++
	} else {
		counters.BytesSaved += s.pageBytes[p]
	}
	// The new owner of the device page must wait for this copy: what copying ahead is meant to
	// prevent.
	if what.Waits {
		counters.WaitingTakes++
	}
	// A copy that was made ahead of demand has been counted by copiedAhead.
	if what.Copied {
		counters.BytesOffloaded += s.pageBytes[p]
	}
}

// onboarded counts a page that was copied to the device.
func (s *statistics) onboarded(p int) {
	counters := s.pool(p)
	counters.Onboarded++
	counters.BytesOnboarded += s.pageBytes[p]
}

// copiedAhead counts pages that were copied ahead of demand.
func (s *statistics) copiedAhead(p, pages int) {
	counters := s.pool(p)
	counters.AheadPages += int64(pages)
	counters.BytesOffloaded += int64(pages) * s.pageBytes[p]
}

// useClock gives the uses that references leave when they end.
// A use decides what is evicted first among pages of one priority. It counts requests and
// their sequences and not time, so the order of eviction is the same in every run.
type useClock struct{ last protocol.Use }

// next gives a use later than all before.
func (c *useClock) next() protocol.Use {
	c.last = c.last.Next()
	return c.last
}
