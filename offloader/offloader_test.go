package offloader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// carry submits everything of the work under way, tickets counting up.
func carry(o *Offloader, seq *uint64) {
	for s := o.Next(); s != nil; s = o.Next() {
		*seq++
		o.Submitted(at(messages.StreamID(s.Lane)+1, *seq), -1)
	}
	o.Finish()
}

// serve runs one Move of one pool.
func serve(
	o *Offloader, stamp uint64, pm protocol.PoolMove, effects ...protocol.Effect,
) *protocol.Move {
	m := &protocol.Move{Stamp: stamp, Effects: effects, Pools: []protocol.PoolMove{pm}}
	o.Begin(m)
	seq := stamp * 100
	carry(o, &seq)
	return m
}

// filled has blocks 0…n−1 in host memory, evicted from device pages 0…n−1.
func filled(cfg Config, n int) *Offloader {
	o := New(cfg)
	var pm protocol.PoolMove
	for i := range n {
		pm.Victims = append(pm.Victims, protocol.Victim{
			Page: messages.PageID(i), Block: protocol.BlockID(i), Depth: int32(i), Priority: 35, Use: 1,
		})
	}
	serve(o, 1, pm)
	return o
}

// A block that one tenant offloaded may be onboarded by another one: the clean copy is on the
// account of the first, the contents that come back are on that of the second.
func TestTheTenantOfACleanCopyChanges(t *testing.T) {
	o := New(Config{Pools: []PoolConfig{{
		Name: "wfullh1", HostPages: 4, PageBytes: 32, TokensPerBlock: 4,
		Regions: []windows.Region{{Runs: 2, TokenBytes: 4}},
	}}, Quotas: []windows.Quota{windows.NoQuota / 2, windows.NoQuota / 2}})
	victim := victimOf(0)
	serve(o, 1, protocol.PoolMove{Victims: []protocol.Victim{victim}})
	serve(o, 2, protocol.PoolMove{Onboards: []protocol.Onboard{{Block: victim.Block, To: 1}}})
	require.NoError(t, o.Check())
	victim.Page, victim.Tenant = 1, 1
	m := serve(o, 3, protocol.PoolMove{Victims: []protocol.Victim{victim}})
	require.NoError(t, o.Check())
	require.False(t, m.Pools[0].Outcomes[0].Copied, "the clean copy serves")
	order := o.hosts[0].order
	require.Equal(t, []int{0, 1}, []int{order.Account(0).Cached, order.Account(1).Cached})
	require.Equal(t, protocol.Tenant(1),
		o.hosts[0].order.Page(int32(m.Pools[0].Outcomes[0].Host)).Tenant)
}

func TestPanicsStateTheFacts(t *testing.T) {
	onboard := func(blocks ...protocol.BlockID) protocol.PoolMove {
		var pm protocol.PoolMove
		for i, b := range blocks {
			pm.Onboards = append(pm.Onboards, protocol.Onboard{Block: b, To: messages.PageID(i)})
		}
		return pm
	}
	cases := map[string]struct {
		do   func(o *Offloader)
		want string
	}{
		"unknown block": {func(o *Offloader) { serve(o, 2, onboard(9)) },
			"offloader: pool wfullh1: onboard of block 9, whose host contents are none"},
		"clean copy": {func(o *Offloader) { serve(o, 2, onboard(0)); serve(o, 3, onboard(0)) },
			"offloader: pool wfullh1: onboard of block 0, whose host contents are clean"},
		"twice": {func(o *Offloader) { serve(o, 2, onboard(0, 0)) },
			"offloader: pool wfullh1: end of onboard of block 0, whose host contents are clean"},
		"no such page": {func(o *Offloader) {
			serve(o, 2, protocol.PoolMove{Onboards: []protocol.Onboard{{Block: 0, To: -1}}})
		}, "offloader: copy of page 0/secondary 0 to 0/primary -1"},
		"unpinned": {func(o *Offloader) {
			serve(o, 2, protocol.PoolMove{Unpins: []protocol.Touch{{Block: 1}}})
		}, "offloader: pool wfullh1: unpin of block 1, which has no pin"},
		"victim with sole contents": {func(o *Offloader) {
			serve(o, 2, protocol.PoolMove{Victims: []protocol.Victim{{Page: 5, Block: 1}}})
		}, "offloader: pool wfullh1: victim page 5 caches block 1, whose only contents are host page 1"},
		"copy from the wrong page": {func(o *Offloader) {
			serve(o, 2,
				protocol.PoolMove{Copies: []protocol.PageCopy{{From: protocol.OnHost(1), Block: 0, Tokens: 1}}})
		}, "offloader: pool wfullh1: copy of block 0 from host page 1, which is on page 0"},
		"copy without a source": {func(o *Offloader) {
			serve(o, 2,
				protocol.PoolMove{Copies: []protocol.PageCopy{{From: protocol.Nowhere, To: 3, Tokens: 1}}})
		}, "offloader: pool wfullh1: copy to page 3 without a source"},
		"copy of too much": {func(o *Offloader) {
			serve(o, 2,
				protocol.PoolMove{Copies: []protocol.PageCopy{{From: protocol.OnDevice(1), To: 3, Tokens: 5}}})
		}, "offloader: pool wfullh1: copy of 5 tokens to page 3"},
		"effect of another": {func(o *Offloader) {
			serve(o, 2, protocol.PoolMove{}, protocol.Effect{Kind: protocol.Attach,
				Blocks: []protocol.BlockID{1}})
		}, "offloader: pool wfullh1: effect 0 is not of host memory"},
		"order of calls": {func(o *Offloader) { o.Finish() },
			"offloader: Finish while idle, which wants planned"},
		"unfinished": {func(o *Offloader) {
			o.Begin(&protocol.Move{Pools: []protocol.PoolMove{onboard(0)}})
			o.Finish()
		}, "offloader: Finish with 1 of 1 transfers not submitted"},
		"no ticket": {func(o *Offloader) {
			o.Begin(&protocol.Move{Pools: []protocol.PoolMove{onboard(0)}})
			o.Next()
			o.Submitted(messages.Ticket{}, -1)
		}, "offloader: copies on lane onboard are queued without a ticket"},
		"no such copy": {func(o *Offloader) {
			o.Begin(&protocol.Move{Pools: []protocol.PoolMove{onboard(0)}})
			o.Next()
			o.Submitted(at(1, 1), 1)
		}, "offloader: copy 1 of 1 failed"},
		"adopted twice": {func(o *Offloader) { o.adopt(0, []protocol.KeptPage{{Page: 0, Block: 7}}) },
			"offloader: pool wfullh1: adoption of block 7 on host page 0, which is sole; the block is on page -1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.PanicsWithValue(t, c.want, func() { c.do(filled(smallConfig(), 2)) })
		})
	}
}

func TestWithoutHostMemoryEverythingIsDropped(t *testing.T) {
	cfg := smallConfig()
	cfg.Pools[0].HostPages = 0
	o := New(cfg)
	m := serve(o, 1, protocol.PoolMove{Victims: []protocol.Victim{{Page: 1, Block: 1, Priority: 100}}})
	require.Equal(t, []protocol.Outcome{{Host: messages.NoPage, Displaced: protocol.NoBlock}},
		m.Pools[0].Outcomes)
	require.Equal(t, []inspect.TierPages{{}}, m.Counts)
}

func TestAdoptedContentsGoOnAsBefore(t *testing.T) {
	old := filled(smallConfig(), 3)
	o := New(smallConfig())
	o.adopt(0, []protocol.KeptPage{
		{Page: 2, Block: 2, Depth: 2, Priority: 35, Use: 1, Pins: 1},
		{Page: 0, Block: 0, Depth: 0, Priority: 35, Use: 1},
	})
	require.NoError(t, o.Check())
	require.Equal(t, inspect.TierPages{Total: 4, Used: 1, Cached: 1, Free: 2}, o.Counts(0))
	require.Equal(t, inspect.TierPages{Total: 4, Cached: 3, Free: 1}, old.Counts(0))
	var pm protocol.PoolMove
	for i := range 4 {
		pm.Victims = append(pm.Victims, protocol.Victim{Page: messages.PageID(i),
			Block: protocol.BlockID(10 + i), Priority: 90, Use: 9})
	}
	pm.Victims[3].Priority = 50
	m := serve(o, 2, pm)
	var displaced []protocol.BlockID
	for _, out := range m.Pools[0].Outcomes {
		displaced = append(displaced, out.Displaced)
	}
	require.Equal(t, []protocol.BlockID{protocol.NoBlock, protocol.NoBlock, 0, protocol.NoBlock},
		displaced)
	require.Equal(t, messages.NoPage, m.Pools[0].Outcomes[3].Host, "the pinned page is no victim")
}

func TestReusedRecordsKeepNoOldResults(t *testing.T) {
	o := filled(smallConfig(), 2)
	m := &protocol.Move{Stamp: 2, Pools: []protocol.PoolMove{{
		Onboards: []protocol.Onboard{{Block: 0, To: 4, Failed: true}},
		Copies:   []protocol.PageCopy{{From: protocol.OnDevice(1), To: 5, Tokens: 4, Failed: true}},
		Outcomes: make([]protocol.Outcome, 5),
	}}, Counts: make([]inspect.TierPages, 3),
		Queries: []protocol.WaitQuery{{Tickets: []messages.Ticket{at(9, 9)}}}}
	o.Begin(m)
	var seq uint64
	carry(o, &seq)
	require.False(t, m.Pools[0].Onboards[0].Failed)
	require.False(t, m.Pools[0].Copies[0].Failed)
	require.Empty(t, m.Pools[0].Outcomes)
	require.Len(t, m.Counts, 1)
	require.Empty(t, m.Queries[0].Tickets)
}

// A device that refuses everything ends every Move all the same.
func TestNothingWorks(t *testing.T) {
	o := filled(smallConfig(), 3)
	before := o.String()
	m := &protocol.Move{Stamp: 2, Pools: []protocol.PoolMove{{
		Victims:  []protocol.Victim{{Page: 5, Block: 5, Priority: 35, Use: 3}},
		Onboards: []protocol.Onboard{{Block: 0, To: 4}, {Block: 1, To: 6}},
		Copies: []protocol.PageCopy{
			{From: protocol.OnHost(2), Block: 2, To: 5, Tokens: 3},
			{From: protocol.OnDevice(5), To: 7, Tokens: 3},
		},
	}}}
	o.Begin(m)
	calls := 0
	for s := o.Next(); s != nil; s = o.Next() {
		calls++
		o.Submitted(messages.Ticket{}, 0)
	}
	o.Finish()
	require.NoError(t, o.Check())
	require.Equal(t, 4, calls, "the copy from page 5 was not tried")
	pm := &m.Pools[0]
	require.True(t, pm.Outcomes[0].Failed)
	require.True(t, pm.Onboards[0].Failed && pm.Onboards[1].Failed && pm.Copies[0].Failed &&
		pm.Copies[1].Failed)
	require.Equal(t, before, o.String(), "nothing has changed")
}

// Check sees each kind of damage.
func TestCheckSeesDamage(t *testing.T) {
	cases := map[string]struct {
		harm func(o *Offloader)
		want string
	}{
		"block": {func(o *Offloader) { o.hosts[0].byBlock[1] = 0 },
			"block 1 is on host page 0, which holds block 0"},
		"lost": {func(o *Offloader) { o.hosts[0].byBlock[1] = messages.NoPage },
			"host page 1 holds block 1, which is on page -1"},
		"free": {func(o *Offloader) { o.hosts[0].pages[0].state = free },
			"host page 0 is free and holds block 0"},
		"ring":      {func(o *Offloader) { o.hosts[0].idle[3] = 2 }, "host page 2 in the ring is sole"},
		"ring size": {func(o *Offloader) { o.hosts[0].size = 0 }, "0 pages in the ring, 1 free"},
		"pins": {func(o *Offloader) { o.hosts[0].pages[1].pins = 1 },
			"host page 1 is sole with 1 pins, and may be displaced"},
		"negative": {func(o *Offloader) { o.hosts[0].pages[1].pins = -1 },
			"host page 1 is sole and has -1 pins"},
		"order": {func(o *Offloader) { o.hosts[0].order.Remove(2) },
			"host page 2 is sole with 0 pins, and may be displaced: false"},
		"ahead": {func(o *Offloader) {
			o.hosts[0].pages[2].at = o.hosts[0].ahead.PushBack(messages.PageID(2))
		}, "host page 2 is sole, among the ahead copies: true"},
		"counts":  {func(o *Offloader) { o.hosts[0].counts[clean]++ }, "counts [1 3 1 0 0]"},
		"guarded": {func(o *Offloader) { o.guard(0, 0) }, "1 pages guarded"},
		"plan":    {func(o *Offloader) { o.cursor = 1 }, "idle with 1 of 3 items submitted"},
		"reads": {func(o *Offloader) {
			o.ledger.slot(Slot{Page: 1}).reads = []messages.Ticket{at(1, 1), at(1, 2)}
		}, "0/primary 1: stream 1 reads twice"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := filled(smallConfig(), 3)
			require.NoError(t, o.Check())
			c.harm(o)
			require.ErrorContains(t, o.Check(), c.want)
		})
	}
}

// A partial copy moves the leading tokens of every run, and nothing else.
func TestPiecesCoverTheTokens(t *testing.T) {
	c := PoolConfig{Name: "p", PageBytes: 3*2*2*8*5*2 + 7, TokensPerBlock: 8,
		Regions: []windows.Region{{Runs: 3 * 2 * 2, TokenBytes: 5 * 2}}}
	for n := int32(1); n <= 8; n++ {
		page := make([]byte, c.PageBytes)
		var total int64
		for _, piece := range c.cut(nil, &item{tokens: n}) {
			require.Equal(t, piece.SrcOffset, piece.DstOffset)
			total += piece.Bytes
			for i := range piece.Bytes {
				page[piece.DstOffset+i]++
			}
		}
		require.Equal(t, c.bytes(n), total)
		for layer := range 3 {
			for kv := range 2 {
				for head := range 2 {
					for token := range 8 {
						offset := (((layer*2+kv)*2+head)*8 + token) * 5 * 2
						for b := range 5 * 2 {
							want := byte(0)
							if token < int(n) {
								want = 1
							}
							require.Equal(t, want, page[offset+b], "%d tokens, layer %d kv %d head %d token %d", n,
								layer, kv, head, token)
						}
					}
				}
			}
		}
	}
}
