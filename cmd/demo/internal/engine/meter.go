package engine

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Operation names a kind of engine call that a Meter measures.
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

// Buckets of a histogram: 16 to each doubling, so a quantile is at most 1/16
// off; 44 doublings of a nanosecond are five hours.
const (
	stepsPerDoubling = 16
	buckets          = 44 * stepsPerDoubling
)

// Timing is what a Meter saw of one operation.
type Timing struct {
	Calls int64
	Items int64 // requests or steps in those calls
	Total time.Duration
	Max   time.Duration
	count [buckets]int64
}

// Quantile is the duration that the share q of the calls, 0 < q ≤ 1, did not exceed.
func (t *Timing) Quantile(q float64) time.Duration {
	rank := int64(q*float64(t.Calls) + 0.5)
	seen := int64(0)
	for i, n := range t.count {
		if seen += n; n > 0 && seen >= max(rank, 1) {
			return min(upper(i), t.Max)
		}
	}
	return t.Max
}

// bucket is the index of a duration: the doubling it lies in, and the four
// bits behind the leading one. Below 16 ns every nanosecond has its own.
func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < stepsPerDoubling {
		return int(n)
	}
	shift := bits.Len64(n) - 5
	return min(stepsPerDoubling*(shift+1)+int(n>>shift)-stepsPerDoubling, buckets-1)
}

// upper is the longest duration of a bucket.
func upper(i int) time.Duration {
	if i < stepsPerDoubling {
		return time.Duration(i)
	}
	shift := i/stepsPerDoubling - 1
	lead := uint64(i%stepsPerDoubling + stepsPerDoubling)
	return time.Duration((lead+1)<<shift - 1)
}

// Meter passes calls on to an engine and measures the wall time they take.
type Meter struct {
	Engine
	mu     sync.Mutex
	timing [operations]Timing
}

// NewMeter puts a meter around an engine.
func NewMeter(e Engine) *Meter { return &Meter{Engine: e} }

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

func (m *Meter) record(o Operation, items int, start time.Time) {
	d := time.Since(start)
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.timing[o]
	t.Calls++
	t.Items += int64(items)
	t.Total += d
	t.Max = max(t.Max, d)
	t.count[bucket(d)]++
}

// Admit measures the call of the same name.
func (m *Meter) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	defer m.record(OpAdmit, 1, time.Now())
	return m.Engine.Admit(ctx, r)
}

// Do measures a call whose record is used again by the next, as a host's would be that
// allocates nothing. An engine without Do serves it by the method of its kind.
func (m *Meter) Do(ctx context.Context, request messages.Request) error {
	e, able := m.Engine.(interface {
		Do(context.Context, messages.Request) error
	})
	if !able {
		e = methods{m.Engine}
	}
	o, items := OpOther, 1
	switch r := request.(type) {
	case *messages.Admit:
		o, items = OpAdmit, len(r.Requests)
	case *messages.Commit:
		o, items = OpCommit, len(r.Steps)
	case *messages.Release:
		o, items = OpRelease, len(r.Steps)
	}
	defer m.record(o, items, time.Now())
	return e.Do(ctx, request)
}

// methods serves the requests of a replay by the methods of an engine.
type methods struct{ Engine }

// Do calls the method of the request's kind.
func (e methods) Do(ctx context.Context, request messages.Request) (err error) {
	switch r := request.(type) {
	case *messages.Admit:
		r.Results, err = e.AdmitBatch(ctx, r.Requests)
	case *messages.Commit:
		r.Results, err = e.Commit(ctx, r.Steps)
	case *messages.Release:
		r.Results, err = e.Release(ctx, r.Steps)
	default:
		err = fmt.Errorf("engine: no method for %T", request)
	}
	return err
}

// AdmitBatch measures the call of the same name.
func (m *Meter) AdmitBatch(ctx context.Context, r []messages.AdmitRequest) ([]messages.Admitted, error) {
	defer m.record(OpAdmit, len(r), time.Now())
	return m.Engine.AdmitBatch(ctx, r)
}

// Commit measures the call of the same name.
func (m *Meter) Commit(ctx context.Context, s []messages.CommitStep) ([]messages.StepResult, error) {
	defer m.record(OpCommit, len(s), time.Now())
	return m.Engine.Commit(ctx, s)
}

// Append measures the call of the same name.
func (m *Meter) Append(ctx context.Context, s []messages.AppendStep) ([]messages.StepResult, error) {
	defer m.record(OpAppend, len(s), time.Now())
	return m.Engine.Append(ctx, s)
}

// Release measures the call of the same name.
func (m *Meter) Release(ctx context.Context, s []messages.ReleaseStep) ([]messages.StepResult, error) {
	defer m.record(OpRelease, len(s), time.Now())
	return m.Engine.Release(ctx, s)
}

// Lookup measures the call of the same name.
func (m *Meter) Lookup(ctx context.Context, p messages.Prefix) (messages.Found, error) {
	defer m.record(OpLookup, 1, time.Now())
	return m.Engine.Lookup(ctx, p)
}

// Prefetch measures the call of the same name.
func (m *Meter) Prefetch(ctx context.Context, p messages.Prefix) (int, error) {
	defer m.record(OpOther, 1, time.Now())
	return m.Engine.Prefetch(ctx, p)
}

// TablesOf measures the call of the same name.
func (m *Meter) TablesOf(ctx context.Context, s messages.SequenceID) (messages.Tables, error) {
	defer m.record(OpOther, 1, time.Now())
	return m.Engine.TablesOf(ctx, s)
}

// Stats measures the call of the same name.
func (m *Meter) Stats(ctx context.Context) (inspect.Stats, error) {
	defer m.record(OpOther, 1, time.Now())
	return m.Engine.Stats(ctx)
}
