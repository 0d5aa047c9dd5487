package actors

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// A sampler does not follow NoPage, and follows page 0 alone if the pool has fewer pages than
// it skips.
func TestASamplerOfFewPages(t *testing.T) {
	for _, every := range []int{1, 3, 4, 64, 1 << 30, math.MaxInt32} {
		told := 0
		s := &pageSampler{every: every, observe: func(inspect.PageTime) { told++ }}
		pages := []messages.PageID{messages.NoPage, 0, 1, 2}
		for _, kind := range []protocol.PoolOpKind{protocol.AttachPages, protocol.SetPriority, protocol.Claim} {
			s.done(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: kind, Pages: pages}}})
		}
		want := 1
		if every == 1 {
			want = 3
		}
		assert.Equal(t, want, told, "reuse gaps with every %d", every)
	}
}
