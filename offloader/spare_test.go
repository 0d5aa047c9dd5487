package offloader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// victim of one device page, that caches the block of its number.
func victimOf(page int) messages.Victim {
	return messages.Victim{Page: messages.PageID(page), Block: messages.BlockID(page), Depth: int32(page), Priority: 35, Use: messages.Use(page + 1)}
}

// With host memory full, pages near eviction are copied to spare pages. When one
// is evicted, what the rule names is displaced, and nothing is copied any more.
func TestCopiesAheadOfAFullHost(t *testing.T) {
	o := New(Config{Ahead: true, Pools: []PoolConfig{{
		Name: "wfullh1", DevicePages: 8, HostPages: 2, SparePages: 2, PageBytes: 32,
		Layers: 1, KVHeads: 1, HeadDim: 4, ElemBytes: 1, TokensPerBlock: 4,
	}}})
	serve(o, 1, messages.PoolMove{Victims: []messages.Victim{victimOf(0), victimOf(1)}})
	full := messages.PageCounts{Total: 2, Cached: 2}
	require.Equal(t, full, o.Counts(0))

	seq := uint64(1000)
	ahead := func(stamp uint64, pages ...int) int {
		var list []messages.Victim
		for _, p := range pages {
			list = append(list, victimOf(p))
		}
		n := o.PlanAhead(0, stamp, list)
		carry(o, &seq)
		require.NoError(t, o.Check())
		require.Equal(t, full, o.Counts(0), "copies ahead count for nothing")
		return n
	}
	require.Equal(t, 2, ahead(2, 2, 3, 4), "two spare pages")
	require.Equal(t, 0, ahead(3, 2, 3, 4), "all copies are still near eviction")

	m := serve(o, 4, messages.PoolMove{Victims: []messages.Victim{victimOf(2)}})
	require.Equal(t, messages.Outcome{Host: o.Sole(0, 2), Displaced: 0, Copied: false}, m.Pools[0].Outcomes[0])
	require.Equal(t, full, o.Counts(0))
	require.Equal(t, 1, ahead(5, 3, 4, 5), "the page of what was displaced is spare now")
	require.Equal(t, 2, ahead(6, 5, 6, 7), "copies that are no longer near eviction make place")
	require.NoError(t, o.Check())

	// Contents that may displace nothing are dropped, copied or not.
	low := victimOf(5)
	low.Priority = 0
	m = serve(o, 7, messages.PoolMove{Victims: []messages.Victim{low}})
	require.Equal(t, messages.Outcome{Host: messages.NoPage, Displaced: messages.NoBlock}, m.Pools[0].Outcomes[0])
	require.NoError(t, o.Check())
}
