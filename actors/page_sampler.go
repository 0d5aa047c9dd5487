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
	pages   []sampledPage // by page number / every; grows with the pool
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
		switch op.Kind {
		case protocol.Take:
			pages = pages[len(pages)-op.N:] // those before were not taken now
			fallthrough
		case protocol.Claim, protocol.TakeForCheckpoint, protocol.Drop, protocol.AttachPages,
			protocol.DetachPages, protocol.EndPin:
			s.use(op.Kind, pages, w.Now)
		default: // No page is used, stored or evicted.
		}
	}
}

// use follows an operation on pages.
func (s *pageSampler) use(kind protocol.PoolOpKind, pages []messages.PageID, now time.Duration) {
	for _, id := range pages {
		if id >= 0 && int(id)%s.every == 0 { // NoPage is negative
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
