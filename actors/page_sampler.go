package actors

import (
	"math"
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
	pool    messages.PoolID
	every   int
	observe func(inspect.PageTime)
	mask    uint32        // every − 1 of a power of two, the usual choice; else 0
	pages   []sampledPage // by page number / every; grows with the pool
}

// newPageSampler makes a sampler that follows one of so many pages; with more than a pool can
// have, page 0 alone.
func newPageSampler(pool messages.PoolID, every int, observe func(inspect.PageTime)) *pageSampler {
	every = min(every, math.MaxInt32)
	s := &pageSampler{pool: pool, every: every, observe: observe}
	if every&(every-1) == 0 {
		s.mask = uint32(every - 1)
	}
	return s
}

// sampledPage is when the block on a page was stored, or notStored, and when it was last used.
// Four of them are in a line of the processor's caches, which has none of them when they are
// needed: no other code reads them.
type sampledPage struct{ since, usedAt time.Duration }

// notStored says of a page that no block is stored on it.
const notStored time.Duration = math.MinInt64

// page is the record of a page that is followed.
func (s *pageSampler) page(id messages.PageID) *sampledPage {
	i := int(id) / s.every
	for len(s.pages) <= i {
		s.pages = append(s.pages, sampledPage{since: notStored})
	}
	return &s.pages[i]
}

// done follows the work that a pool has done.
func (s *pageSampler) done(w *protocol.PoolWork) {
	for i := range w.Ops {
		op := &w.Ops[i]
		pages := op.Pages
		// Nearly all operations of a decode step have one page, which is not followed. The test
		// needs no more of an operation than its pages.
		if len(pages) == 1 && uint32(pages[0])&s.mask != 0 {
			continue
		}
		switch op.Kind {
		case protocol.Take:
			pages = pages[len(pages)-op.N:] // those before were not taken now
			fallthrough
		case protocol.Claim, protocol.TakeForCheckpoint, protocol.Drop, protocol.AttachPages, protocol.DetachPages, protocol.EndPin:
			s.use(op.Kind, pages, w.Now)
		default: // No page is used, stored or evicted.
		}
	}
}

// use follows an operation on pages. Powers of two need no division: this is one test for each
// page of each operation.
func (s *pageSampler) use(kind protocol.PoolOpKind, pages []messages.PageID, now time.Duration) {
	if s.mask != 0 {
		for _, id := range pages {
			if uint32(id)&s.mask == 0 && id >= 0 { // NoPage is negative
				s.follow(s.page(id), kind, now)
			}
		}
		return
	}
	// 32 bits: a division of 64 takes several times as long.
	every := uint32(s.every)
	for _, id := range pages {
		if uint32(id)%every == 0 && id >= 0 {
			s.follow(s.page(id), kind, now)
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
		*p = sampledPage{since: now, usedAt: now}
	case protocol.DetachPages:
		p.since = notStored // moved away or forgotten, not evicted
	case protocol.Drop, protocol.EndPin:
		p.usedAt = now
	case protocol.Claim:
		if p.since != notStored {
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageReuseGap, Duration: now - p.usedAt})
		}
		p.usedAt = now
	default: // A page that is taken and caches a block is evicted.
		if p.since != notStored {
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageLifetime, Duration: now - p.since})
			s.observe(inspect.PageTime{Pool: s.pool, Kind: inspect.PageIdle, Duration: now - p.usedAt})
		}
		p.since = notStored
	}
}

// reset forgets all pages: their numbers, or what they hold, may have changed.
func (s *pageSampler) reset() { s.pages = s.pages[:0] }
