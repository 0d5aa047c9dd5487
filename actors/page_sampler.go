package actors

import (
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

// done follows the work that a pool has done.
func (s *pageSampler) done(w *protocol.PoolWork) {
	for i := range w.Ops {
		op := &w.Ops[i]
		pages := op.Pages
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

// use follows an operation on pages. Powers of two, the usual choice, need no division: this is
// one test for each page of each operation.
func (s *pageSampler) use(kind protocol.PoolOpKind, pages []messages.PageID, now time.Duration) {
	every := uint32(s.every)
	if mask := every - 1; every&mask == 0 {
		for _, id := range pages {
			if uint32(id)&mask == 0 && id >= 0 { // NoPage is negative
				s.follow(s.page(id), kind, now)
			}
		}
		return
	}
	// 32 bits: a division of 64 takes several times as long.
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
