package forecast

import "time"

// waits numbers the waits of requests, and tells which last.
//
// A piece keeps the number of the latest wait for it, in the bits above its features. It has the order in which a host
// prefetches what waits, which is the order in which the host will admit it: when nearly all that is cached is awaited, as under
// a long queue, that order decides what is evicted. With one number for all waits between the ends of two requests
// the policy hits less than LRU does, whose last uses have that order.
type waits struct {
	n int64 // waits that have begun
	// of the last awaitedRequests requests, by their number
	ended [awaitedRequests]struct {
		at    time.Duration // when it ended
		waits int64         // that had begun by then
	}
	over int64 // the waits up to this number are over, since too many requests have ended
	// The waits up to this number are over for what the current request has used: they began before another request
	// ended while the current one was running.
	before int64
}

// The numbers of waits come again after half a million. A piece that has been cached and unused for so long is taken for
// an awaited one for awaitedRequests requests.
const (
	awaitedShift    = featureBits * featureCount
	awaitedMask     = 1<<(64-awaitedShift) - 1
	awaitedRequests = 64
	// Ranks are compared over many choices, so the order of waits begins anew seldom.
	awaitedEpoch = (awaitedMask + 1) / 4
	awaitedRank  = 1 << 28 // far above all values: their logarithms are within ±100, in units of 1/unit
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
func (w *waits) lasts(n int64) bool { return (w.n-n)&awaitedMask < w.n-w.over }

// order is the place of a wait that lasts in the order of their beginnings.
func (w *waits) order(n int64) int32 {
	return int32((n - (w.n/awaitedEpoch-2)*awaitedEpoch) & awaitedMask)
}

// BeginWait begins the wait of a request: Await then marks its pieces.
func (p *Policy) BeginWait() {
	// A wait that is a multiple of the numbers would be 0, which means none.
	if p.waits.n++; p.waits.n&awaitedMask == 0 {
		p.waits.n++
	}
}

// Await changes the features of a piece that the request is going to use whose wait has begun last. awaitedRequests
// requests end that: the request that waits may be cancelled.
func (p *Policy) Await(f Features) Features {
	return f&(1<<awaitedShift-1) | Features(p.waits.n&awaitedMask)<<awaitedShift
}

// StillAwaited gives a piece that the current request has used new features. The piece is still awaited if a wait for it
// began after another request had ended while the current one was running: then another one waits for it.
func (p *Policy) StillAwaited(f, before Features) Features {
	if n := before >> awaitedShift; n != 0 && (p.waits.n-int64(n))&awaitedMask < p.waits.n-p.waits.before {
		f |= n << awaitedShift
	}
	return f
}
