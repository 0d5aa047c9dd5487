package pool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// What is peeked is what a Take then evicts, in whichever order the pages came.
func TestPeekedPagesAreEvictedNext(t *testing.T) {
	cases := map[string][]protocol.Use{ // by depth
		"in order":                 {1, 2, 3, 4, 5, 6},
		"out of order":             {9, 1, 8, 2, 7, 3},
		"a sequence came too late": {9, 3, 3, 3, 3, 3},
		"backwards":                {6, 5, 4, 3, 2, 1},
	}
	for name, uses := range cases {
		t.Run(name, func(t *testing.T) {
			p := New("wfullh1", len(uses))
			take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: len(uses)}}}
			p.Do(&take)
			for i, page := range take.Ops[0].Pages {
				p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
					{Kind: protocol.AttachPages, Pages: []messages.PageID{page},
						Blocks: []protocol.BlockID{protocol.BlockID(i)}, Depth: int32(i),
						Priority: messages.Priority(35 - i%2)},
					{Kind: protocol.Drop, Pages: []messages.PageID{page}, Use: 2 * uses[i]},
				}})
			}
			before := p.String()
			seen := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.PeekVictims, N: 5}}}
			p.Do(&seen)
			require.NoError(t, p.Check())
			require.Equal(t, before, p.String(), "a look ahead changes nothing")
			taken := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 5}}}
			p.Do(&taken)
			require.Equal(t, taken.Victims, seen.Victims)
		})
	}
}

// TestPeekFollowsEvictionOrder: pages stand by use and depth, also those that came out of order.
func TestPeekFollowsEvictionOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pages := rapid.IntRange(1, 40).Draw(t, "pages")
		p := New("wfullh1", pages)
		take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: pages}}}
		p.Do(&take)
		for i, page := range take.Ops[0].Pages {
			attach := protocol.PoolOp{
				Kind: protocol.AttachPages, Pages: []messages.PageID{page},
				Blocks: []protocol.BlockID{protocol.BlockID(i)},
				Depth:  rapid.Int32Range(0, 4).Draw(t, "depth"), Priority: 35,
			}
			p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{attach,
				{Kind: protocol.Drop, Pages: attach.Pages,
					Use: protocol.Use(rapid.IntRange(1, 20).Draw(t, "use"))}}})
		}
		before, n := p.String(), rapid.IntRange(1, pages).Draw(t, "n")
		look := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.PeekVictims, N: n}}}
		p.Do(&look)
		require.NoError(t, p.Check())
		require.Equal(t, before, p.String(), "a look ahead changes nothing")
		taken := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: n}}}
		p.Do(&taken)
		require.Equal(t, taken.Victims, look.Victims)
	})
}
