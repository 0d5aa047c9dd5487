package actors

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// A sampler does not follow NoPage, and follows page 0 alone if the pool has fewer pages than
// it skips.
func TestASamplerOfFewPages(t *testing.T) {
	for _, every := range []int{1, 3, 4, 64, 1 << 30, math.MaxInt32, math.MaxInt} {
		told := 0
		s := &pageSampler{every: every, observe: func(inspect.PageTime) { told++ }}
		pages := []messages.PageID{messages.NoPage, 0, 1, 2}
		for _, kind := range []protocol.PoolOpKind{protocol.AttachPages, protocol.SetPriority,
			protocol.Claim} {
			s.done(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: kind, Pages: pages}}})
		}
		want := 1
		if every == 1 {
			want = 3
		}
		assert.Equal(t, want, told, "reuse gaps with every %d", every)
	}
}

// Pages are followed whether they come one in an operation, as those of decode steps, or many.
func TestASamplerOfOperationsWithOnePage(t *testing.T) {
	for _, every := range []int{1, 2, 3, 8, 64, 100} {
		var times [2][]inspect.PageTime
		sampler := func(i int) *pageSampler {
			return &pageSampler{pool: 1, every: every,
				observe: func(x inspect.PageTime) { times[i] = append(times[i], x) }}
		}
		one, many := sampler(0), sampler(1)
		pages := []messages.PageID{messages.NoPage}
		for i := range messages.PageID(200) {
			pages = append(pages, i)
		}
		for i, kind := range []protocol.PoolOpKind{protocol.AttachPages, protocol.Claim, protocol.Drop,
			protocol.Take, protocol.Claim} {
			now := time.Duration(i) * time.Second
			for _, p := range pages[1:] {
				one.done(
					&protocol.PoolWork{Now: now,
						Ops: []protocol.PoolOp{{Kind: kind, Pages: []messages.PageID{p}, N: 1}}})
			}
			one.done(
				&protocol.PoolWork{Now: now, Ops: []protocol.PoolOp{{Kind: kind, Pages: pages[:1], N: 1}}})
			many.done(
				&protocol.PoolWork{Now: now, Ops: []protocol.PoolOp{{Kind: kind, Pages: pages, N: len(pages)}}})
		}
		followed := (200 + every - 1) / every
		assert.Len(t, times[0], 3*followed,
			"a reuse gap, a lifetime and an idle time of each with every %d", every)
		assert.Equal(t, times[1], times[0])
	}
}
