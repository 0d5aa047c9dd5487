package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvactor/kvactor/internal/calls"
	"github.com/kvactor/kvactor/messages"
)

// operations are the kinds of calls that a Meter measures, in the order in which a sequence needs
// them. Other calls are prefetches and reads of page tables.
var operations = [...]string{"lookup", "admit", "commit", "append", "release", "other"}

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
	timing [len(operations)]Timing
}

// Observe notes a call. It is made for actors.WithCallObserver. Calls that look at the engine, as
// checks and pages of statistics do, are not measured.
func (m *Meter) Observe(_ context.Context, request messages.Request, began time.Time, _ error) {
	span, items, _ := calls.Describe(request)
	name := strings.TrimPrefix(span, "kvactor.")
	if name == "prefetch" || name == "tables" {
		name, items = "other", 1
	}
	o := slices.Index(operations[:], name)
	if o < 0 || items < 0 {
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

// Timings calls f for every operation that was called, in order.
func (m *Meter) Timings(f func(name string, t *Timing)) {
	m.mu.Lock()
	timing := m.timing
	m.mu.Unlock()
	for o, name := range operations {
		if timing[o].Calls > 0 {
			f(name, &timing[o])
		}
	}
}

// Total is the wall time spent inside engine calls, of all goroutines together.
func (m *Meter) Total() time.Duration {
	total := time.Duration(0)
	m.Timings(func(_ string, t *Timing) { total += t.Total })
	return total
}
