package offloader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// victimOf is the victim of one device page, which caches the block of its number.
func victimOf(page int) protocol.Victim {
	return protocol.Victim{Page: messages.PageID(page), Block: protocol.BlockID(page),
		Depth: int32(page), Priority: 35, Use: protocol.Use(page + 1)}
}

// With host memory full, pages near eviction are copied to spare pages. When one
// is evicted, what the rule names is displaced, and nothing is copied any more.
func TestCopiesAheadOfAFullHost(t *testing.T) {
	o := New(Config{Pools: []PoolConfig{{
		Name: "wfullh1", HostPages: 2, SparePages: 2, PageBytes: 32,
		Regions: []windows.Region{{Runs: 2, TokenBytes: 4}}, TokensPerBlock: 4,
	}}})
	serve(o, 1, protocol.PoolMove{Victims: []protocol.Victim{victimOf(0), victimOf(1)}})
	full := inspect.TierPages{Total: 2, Cached: 2}
	require.Equal(t, full, o.Counts(0))

	seq := uint64(1000)
	ahead := func(pages ...int) int {
		var list []protocol.Victim
		for _, p := range pages {
			list = append(list, victimOf(p))
		}
		n := o.PlanAhead(0, &protocol.EvictionCandidates{Victims: list, Evictable: len(list)})
		carry(o, &seq)
		require.NoError(t, o.Check())
		require.Equal(t, full, o.Counts(0), "copies ahead count for nothing")
		return n
	}
	require.Equal(t, 2, ahead(2, 3, 4), "two spare pages")
	require.Equal(t, 0, ahead(2, 3, 4), "all copies are still near eviction")

	m := serve(o, 4, protocol.PoolMove{Victims: []protocol.Victim{victimOf(2)}})
	require.Equal(t, protocol.Outcome{Host: o.hosts[0].find(2), Displaced: 0, Dirty: true,
		Waits: true}, m.Pools[0].Outcomes[0])
	require.Equal(t, full, o.Counts(0))
	require.Equal(t, 1, ahead(3, 4, 5), "the page of what was displaced is spare now")
	require.Equal(t, 2, ahead(5, 6, 7), "copies that are no longer near eviction make place")
	require.NoError(t, o.Check())

	// Contents that may displace nothing are dropped, copied or not.
	low := victimOf(5)
	low.Priority = 0
	m = serve(o, 7, protocol.PoolMove{Victims: []protocol.Victim{low}})
	require.Equal(t, protocol.Outcome{Host: messages.NoPage, Displaced: protocol.NoBlock},
		m.Pools[0].Outcomes[0])
	require.NoError(t, o.Check())
}

// Pages that are held as yet are copied to free pages only: they make no copy
// stale, not even the like of theirs, and not while they are written.
func TestCopiesOfHeldPagesTakeWhatIsFree(t *testing.T) {
	passed := uint64(0)
	o := New(Config{Passed: func(t messages.Ticket) bool { return t.Seq <= passed },
		Pools: []PoolConfig{{
			Name: "wfullh1", HostPages: 1, SparePages: 2, PageBytes: 32,
			Regions: []windows.Region{{Runs: 2, TokenBytes: 4}}, TokensPerBlock: 4,
		}}})
	o.Begin(&protocol.Move{Stamp: 1, Pools: make([]protocol.PoolMove, 1), Marks: []protocol.Mark{{
		Pages: []messages.PageID{3}, Write: true, Ticket: messages.Ticket{Stream: 9, Seq: 5},
	}}})
	o.Finish()
	seq := uint64(1000)
	ahead := func(near int, pages ...int) int {
		seen := protocol.EvictionCandidates{Evictable: near}
		for _, p := range pages {
			seen.Victims = append(seen.Victims, victimOf(p))
		}
		n := o.PlanAhead(0, &seen)
		carry(o, &seq)
		require.NoError(t, o.Check())
		return n
	}
	require.Equal(t, 1, ahead(0, 3, 2), "page 3 is being written")
	passed = 5
	require.Equal(t, 2, ahead(1, 0, 3, 4),
		"page 0 is near eviction, page 3 is there, for page 4 there is no room")
	require.Equal(t, 0, ahead(0, 4, 5))
	require.Equal(t, 2, ahead(2, 4, 5, 6),
		"those near eviction take the place of copies that are not")

	// Whoever takes a page waits for a copy that is under way.
	evict := func(stamp uint64, page int) protocol.Outcome {
		return serve(o, stamp,
			protocol.PoolMove{Victims: []protocol.Victim{victimOf(page)}}).Pools[0].Outcomes[0]
	}
	out := evict(6, 4)
	require.True(t, out.Dirty && out.Waits && !out.Copied, "%+v", out)
	passed = seq
	out = evict(7, 5)
	require.True(t, out.Dirty && !out.Waits && !out.Copied, "%+v", out)
	out = evict(8, 7)
	require.True(t, out.Dirty && out.Waits && out.Copied, "%+v", out)
}
