package actors

import (
	"math"
	"math/bits"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// pageSampler follows some pages of a pool for WithPageObserver: those whose numbers are
// multiples of every. It reads the pool's work when that has been done, so the pool
// itself knows nothing of it and pays nothing without it.
//
// A page is followed from the store of a block on it until that is evicted or forgotten.
//
// It belongs to the pool's actor and calls observe there, so an observer that is slow
// holds up the pool.
type pageSampler struct {
	pool  messages.PoolID
	every int
	multiples
	observe func(inspect.PageTime)
	pages   []sampledPage // by page number / every; grows with the pool
}

// newPageSampler makes a sampler of one page in every, which is at least 1.
func newPageSampler(pool messages.PoolID, every int, observe func(inspect.PageTime)) *pageSampler {
	every = min(every, math.MaxInt32) // no page but 0 is a multiple of more
	return &pageSampler{pool: pool, every: every, multiples: multiplesOf(uint32(every)), observe: observe}
}

// multiples finds the multiples of a number without a division, which takes as long as all
// else that is done for a page that is not followed. With n = odd · 2^zeros a number is a
// multiple of n if and only if its product with the inverse of odd modulo 2^32, rotated by
// zeros, is at most (2^32 − 1) / n (Hacker's Delight, 10-17).
type multiples struct {
	inverse uint32
	zeros   int
	most    uint32
}

// multiplesOf is for the multiples of n, which is not 0.
func multiplesOf(n uint32) multiples {
	zeros := bits.TrailingZeros32(n)
	odd := n >> zeros
	// Newton's method: odd is its own inverse modulo 8, and each step doubles the right bits.
	inverse := odd
	for range 4 {
		inverse *= 2 - odd*inverse
	}
	return multiples{inverse, zeros, math.MaxUint32 / n}
}

// has tells whether a number is one of the multiples.
func (m *multiples) has(n uint32) bool { return bits.RotateLeft32(n*m.inverse, -m.zeros) <= m.most }

// sampledPage is when the block on a page was stored and last used.
type sampledPage struct {
	stored        bool
	since, usedAt time.Duration
}

// page is the record of a page that is followed.
func (s *pageSampler) page(id messages.PageID) *sampledPage {
	i := int(id) / s.every
	for len(s.pages) <= i {
		s.pages = append(s.pages, sampledPage{})
	}
	return &s.pages[i]
}

// followedKinds has a bit for each kind of operation that uses, stores or evicts pages.
const followedKinds = 1<<protocol.Claim | 1<<protocol.Take | 1<<protocol.TakeForCheckpoint | 1<<protocol.Drop |
	1<<protocol.AttachPages | 1<<protocol.DetachPages | 1<<protocol.EndPin

// done follows the work that a pool has done.
func (s *pageSampler) done(w *protocol.PoolWork) {
	for i := range w.Ops {
		op := &w.Ops[i]
		if followedKinds>>op.Kind&1 == 0 {
			continue
		}
		pages := op.Pages
		if op.Kind == protocol.Take {
			pages = pages[len(pages)-op.N:] // those before were not taken now
		}
		for _, id := range pages {
			if s.has(uint32(id)) && id >= 0 { // NoPage is negative
				s.follow(s.page(id), op.Kind, w.Now)
			}
		}
	}
}

// follow changes the record of one page.
//
// A gap is measured from the end of the use before: how long a page has to be kept to be
// of use again.
func (s *pageSampler) follow(p *sampledPage, kind protocol.PoolOpKind, now time.Duration) {
	switch kind {
	case protocol.AttachPages:
		*p = sampledPage{stored: true, since: now, usedAt: now}
	case protocol.DetachPages:
		p.stored = false // moved away or forgotten, not evicted
	case protocol.Drop, protocol.EndPin:
		p.usedAt = now
	case protocol.Claim:
		if p.stored {
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageReuseGap, Duration: now - p.usedAt})
		}
		p.usedAt = now
	default: // A page that is taken and caches a block is evicted.
		if p.stored {
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageLifetime, Duration: now - p.since})
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageIdle, Duration: now - p.usedAt})
		}
		p.stored = false
	}
}

// reset forgets all pages: their numbers, or what they hold, may have changed.
func (s *pageSampler) reset() { s.pages = s.pages[:0] }
