package forecast

import "time"

// waits numbers the waits of requests, and tells which last.
//
// A piece keeps the number of the latest wait for it. It has the order in which a host
// prefetches what waits, which is the order in which the host will admit it: when nearly all
// that is cached is awaited, as under a long queue, that order decides what is evicted. With
// one number for all waits between the ends of two requests the policy hits less than LRU does,
// whose last uses have that order.
type waits struct {
	n int64 // waits that have begun
	// of the last awaitedRequests requests, by their number
	ended [awaitedRequests]struct {
		at    time.Duration // when it ended
		waits int64         // that had begun by then
	}
	over int64 // the waits up to this number are over, since too many requests have ended
	// The waits up to this number are over for what the current request has used: they began
	// before another request ended while the current one was running.
	before int64
}

const (
	// A wait is over when so many requests have ended: the one that waits may be cancelled.
	awaitedRequests = 64
	// Ranks of awaited pieces are above all values, whose logarithms are within ±100, in units
	// of 1/unit.
	awaitedRank  = 1 << 28
	awaitedOrder = 1 << 29
)

// end takes in that a request has ended, by its number.
func (w *waits) end(request int64, admitted, ended time.Duration) {
	e := &w.ended[request%awaitedRequests]
	e.at, e.waits = ended, w.n
	w.over = w.ended[(request+1)%awaitedRequests].waits
	// The first request that ended after the current one was admitted.
	n := request
	for ; n > max(1, request-awaitedRequests+1) && w.ended[(n-1)%awaitedRequests].at > admitted; n-- {
	}
	w.before = w.ended[n%awaitedRequests].waits
}

// lasts tells whether few requests have ended since a wait began.
func (w *waits) lasts(n int64) bool { return n > w.over }

// order is the place of a wait in the order of their beginnings, which begins anew after
// awaitedOrder waits.
func (w *waits) order(n int64) int32 { return int32(n % awaitedOrder) }

// BeginWait begins the wait of a request: Await then marks its pieces.
func (p *Policy) BeginWait() { p.waits.n++ }

// Await changes the features of a piece that the request is going to use whose wait has begun last.
func (p *Policy) Await(f Features) Features {
	f.Wait = p.waits.n
	return f
}

// StillAwaited gives a piece that the current request has used new features. The piece is still
// awaited if a wait for it began after another request had ended while the current one was
// running: then another one waits for it.
func (p *Policy) StillAwaited(f, before Features) Features {
	if before.Wait > p.waits.before {
		f.Wait = before.Wait
	}
	return f
}
