package page

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/kvactor/kvactor/internal/calls"
	"github.com/kvactor/kvactor/messages"
)

// Recorder keeps what an engine's observers tell, for the page: how long calls take, and
// the latest transfers. Its size is fixed. Its methods may be called by any number of
// goroutines.
type Recorder struct {
	mu        sync.Mutex
	transfers [keptTransfers]Transfer // a ring
	told      int64                   // transfers so far
	calls     [callKinds]histogram
}

// keptTransfers is how many transfers are kept, and told in one answer.
const keptTransfers = 256

// Transfer is a batch of copies on one stream that has ended.
type Transfer struct {
	Stream string  `json:"stream"`
	Label  string  `json:"label"`
	Start  float64 `json:"start"` // seconds, by the clock of whoever records it
	End    float64 `json:"end"`
	Copies int     `json:"copies"`
	Bytes  int64   `json:"bytes"`
}

// Copied notes a transfer.
func (r *Recorder) Copied(t Transfer) {
	r.mu.Lock()
	r.transfers[r.told%keptTransfers] = t
	r.told++
	r.mu.Unlock()
}

// since returns the transfers from a number on, the latest ones if there are too many, and
// the number of the next one.
func (r *Recorder) since(n int64) (list []Transfer, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := max(n, r.told-keptTransfers, 0); i < r.told; i++ {
		list = append(list, r.transfers[i%keptTransfers])
	}
	return list, r.told
}

// until returns the transfers before a number that are still kept.
func (r *Recorder) until(n int64) []Transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Transfer
	for i := max(0, r.told-keptTransfers); i < n; i++ {
		list = append(list, r.transfers[i%keptTransfers])
	}
	return list
}

// callNames are the calls whose latency is shown.
var callNames = [callKinds]string{"admit", "append", "commit", "release"}

const callKinds = 4

// histogram counts durations: four buckets for each power of two of nanoseconds.
type histogram [4 * 40]uint32

// bucketOf is the bucket of a duration, and upper the end of a bucket.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 4))
	e := bits.Len64(n) - 1
	return min((e-2)*4+int(n>>(e-2)&3), len(histogram{})-1)
}

func upper(bucket int) time.Duration {
	return time.Duration(5+bucket%4) << (bucket / 4)
}

// Observe notes the duration of a call. It is made for actors.WithCallObserver.
func (r *Recorder) Observe(_ context.Context, request messages.Request, began time.Time, _ error) {
	name, _ := calls.Name(request)
	kind := slices.Index(callNames[:], name)
	if kind < 0 {
		return
	}
	bucket := bucketOf(time.Since(began))
	r.mu.Lock()
	r.calls[kind][bucket]++
	r.mu.Unlock()
}

// Latency has quantiles of the durations of calls.
type Latency struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50"` // seconds, at most a quarter too long
	P99   float64 `json:"p99"`
}

// window are the counts of the last second: each answer adds one and compares with the
// oldest.
type window struct {
	at     [10]time.Time
	counts [10][callKinds]histogram
	next   int
}

// latencies compares the counts with those of about a second ago.
func (r *Recorder) latencies(w *window, now time.Time) map[string]Latency {
	r.mu.Lock()
	current := r.calls
	r.mu.Unlock()
	oldest := w.next
	// After a pause the window holds counts of long ago: the newest of them is the start.
	if newest := (w.next + len(w.at) - 1) % len(w.at); now.Sub(w.at[oldest]) > 2*time.Second {
		oldest = newest
	}
	answer := map[string]Latency{}
	for kind, name := range callNames {
		if l := difference(&current[kind], &w.counts[oldest][kind]); l.Calls > 0 {
			answer[name] = l
		}
	}
	w.at[w.next], w.counts[w.next] = now, current
	w.next = (w.next + 1) % len(w.at)
	return answer
}

// difference has the quantiles of what was counted between two moments.
func difference(now, before *histogram) (l Latency) {
	for i := range now {
		l.Calls += int(now[i] - before[i])
	}
	sum := 0
	for i := range now {
		sum += int(now[i] - before[i])
		if l.P50 == 0 && 2*sum >= l.Calls && sum > 0 {
			l.P50 = upper(i).Seconds()
		}
		if l.P99 == 0 && 100*sum >= 99*l.Calls && sum > 0 {
			l.P99 = upper(i).Seconds()
		}
	}
	return l
}
