package wire

import (
	"context"
	"time"
)

// A publisher without readers is paused: it does not ask the engine for events. The engine
// then hashes no blocks, hands out no events, and makes no garbage for the publisher.
//
//	            no reader for Options.Linger
//	reading ────────────────────────────────▶ paused
//	        ◀────────────────────────────────
//	            attend: a reader comes, and waits for one Poll
//
// What the engine's buffer of events has lost meanwhile comes as the difference to a
// snapshot, in one batch under the next sequence. So a reader sees no gap, and the log of
// batches does not grow during a pause.

// attend makes the publisher read events from now on, for at least Options.Linger. A
// publisher that is paused first reads what has happened: attend returns when that is
// published. It waits for the engine, so the caller holds no lock.
func (p *Publisher) attend(ctx context.Context) {
	if p.o.Interval < 0 {
		return // only the host reads
	}
	p.mu.Lock()
	p.asked = time.Now()
	paused := p.paused
	p.mu.Unlock()
	if !paused {
		return
	}
	// Before run is woken: a reader that comes meanwhile finds the publisher paused still, and
	// its Poll waits for this one.
	err := p.Poll(ctx)
	p.resume()
	// The reader gets what was published before. run tries again.
	if err != nil && ctx.Err() == nil {
		p.o.Logger.Warn("reading events failed", "error", err)
	}
}

// resume has run decide again whether it waits for a reader. A reader that stays calls it
// once it is counted: with a short Linger run may have paused after attend.
func (p *Publisher) resume() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pause decides whether run waits for a reader, and notes it.
func (p *Publisher) pause() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Under the lock: a time from before it may be earlier than what a reader has asked
	// since, and would end a pause without a read.
	now := time.Now()
	if p.isRead() {
		p.asked = now
	}
	p.paused = p.o.Linger >= 0 && now.Sub(p.asked) > p.o.Linger
	return p.paused
}

// isRead tells whether a batch that is published now has a reader. Readers that ask by a
// call or by a request are not counted here: they attend.
func (p *Publisher) isRead() bool {
	// The polled events are those since the last poll, one by one: nothing can make them later.
	return p.o.Polled > 0 || len(p.followers) > 0 || p.pub.subscribed()
}

// subscribed tells whether a subscriber has asked for any topic.
func (s *server) subscribed() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		if len(sub.topics) > 0 {
			return true
		}
	}
	return false
}
