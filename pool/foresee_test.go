package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// What is foreseen is what a Take then evicts, as long as pages come in order.
func TestForeseenPagesAreEvictedNext(t *testing.T) {
	p := New("wfullh1", 6)
	take := messages.PoolWork{Ops: []messages.PoolOp{{Kind: messages.Take, N: 6}}}
	p.Do(&take)
	pages := take.Ops[0].Pages
	for i, page := range pages {
		p.Do(&messages.PoolWork{Ops: []messages.PoolOp{
			{Kind: messages.AttachPages, Pages: []messages.PageID{page}, Blocks: []messages.BlockID{messages.BlockID(i)}, Depth: int32(i), Priority: messages.Priority(35 - i%2)},
			{Kind: messages.Drop, Pages: []messages.PageID{page}, Use: messages.Use(i + 1)},
		}})
	}
	before := p.String()
	seen := messages.PoolWork{Ops: []messages.PoolOp{{Kind: messages.Foresee, N: 4}}}
	p.Do(&seen)
	require.Equal(t, before, p.String(), "foreseeing changes nothing")
	taken := messages.PoolWork{Ops: []messages.PoolOp{{Kind: messages.Take, N: 4}}}
	p.Do(&taken)
	require.Equal(t, taken.Victims, seen.Victims)
}
