package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// Operation names a kind of engine call that a Meter measures. OpOther are prefetches and
// reads of page tables.
type Operation int

// The operations, in the order in which a sequence needs them.
const (
	OpLookup Operation = iota
	OpAdmit
	OpCommit
	OpAppend
	OpRelease
	OpOther
	operations
)

// String names the operation as tables print it.
func (o Operation) String() string {
	return [...]string{"lookup", "admit", "commit", "append", "release", "other"}[o]
}

// Timing is what a Meter saw of one operation.
type Timing struct {
	Calls int64
	Items int64 // requests or steps in those calls
	Total time.Duration
	each  []time.Duration // of the calls, in their order
}

// Quantiles are the durations that the shares of the calls, 0 < q ≤ 1, did not exceed.
func (t *Timing) Quantiles(shares ...float64) []time.Duration {
	sorted, list := slices.Sorted(slices.Values(t.each)), make([]time.Duration, len(shares))
	for i, q := range shares {
		if n := len(sorted); n > 0 {
			list[i] = sorted[min(n-1, max(0, int(q*float64(n)+0.5)-1))]
		}
	}
	return list
}

// Meter measures the wall time that the calls of hosts take. Its methods may be called by any
// number of goroutines.
type Meter struct {
	mu     sync.Mutex
	timing [operations]Timing
}

// Observe notes a call. It is made for actors.WithCallObserver.
func (m *Meter) Observe(_ context.Context, request messages.Request, began time.Time, _ error) {
	o, items, measured := operationOf(request)
	if !measured {
		return
	}
	d := time.Since(began)
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.timing[o]
	t.Calls++
	t.Items += int64(items)
	t.Total += d
	t.each = append(t.each, d)
}

// operationOf is the operation of a host's call and the number of its requests or steps. Calls
// that look at the engine, as checks and pages of statistics do, are not measured.
func operationOf(request messages.Request) (o Operation, items int, measured bool) {
	switch r := request.(type) {
	case *messages.Lookup:
		return OpLookup, 1, true
	case *messages.Admit:
		return OpAdmit, len(r.Requests), true
	case *messages.Commit:
		return OpCommit, len(r.Steps), true
	case *messages.Append:
		return OpAppend, len(r.Steps), true
	case *messages.Release:
		return OpRelease, len(r.Steps), true
	case *messages.Prefetch, *messages.ReadTables:
		return OpOther, 1, true
	}
	return OpOther, 0, false
}

// Timing gives what was measured of one operation so far.
func (m *Meter) Timing(o Operation) Timing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.timing[o]
}

// Timings calls f for every operation that was called, in order.
func (m *Meter) Timings(f func(Operation, *Timing)) {
	for o := range operations {
		if t := m.Timing(o); t.Calls > 0 {
			f(o, &t)
		}
	}
}

// Total is the wall time spent inside engine calls, of all goroutines together.
func (m *Meter) Total() time.Duration {
	total := time.Duration(0)
	m.Timings(func(_ Operation, t *Timing) { total += t.Total })
	return total
}
