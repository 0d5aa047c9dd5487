package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// fronts are, by page, the pages of the next shorter checkpoints of a pool of states, as a pool
// follows them by effects.
type fronts map[messages.PageID]messages.PageID

// follow does what an effect says.
func (f fronts) follow(pages []messages.PageID) {
	for _, page := range pages[1:] {
		f[page] = pages[0]
	}
}

// move gives the checkpoint of a page another one, or takes it out of the others if it leaves the
// device.
func (f fronts) move(from messages.PageID, to protocol.Location) {
	front, ok := f[from]
	if !ok {
		return
	}
	delete(f, from)
	now := front
	if page, tier, held := to.Page(); held && tier == messages.Primary {
		now = page
		f[now] = front
	}
	for page, before := range f {
		if before == from {
			f[page] = now
		}
	}
}

// fronts are those of all pools, searched for among all blocks.
func (o *oracle) fronts() []fronts {
	list := make([]fronts, len(o.pools))
	for p, shape := range o.pools {
		list[p] = fronts{}
		for _, b := range o.blocks {
			page, ok := b.onDevice(p)
			if !ok || !shape.State {
				continue
			}
			list[p][page] = messages.NoPage
			length := 0
			for _, other := range o.blocks {
				n := len(other.full)
				if front, ok := other.onDevice(p); ok && other.ns == b.ns && n < len(b.full) && n > length &&
					slices.Equal(other.full, b.full[:n]) && n%o.tpb == 0 {
					list[p][page], length = front, n
				}
			}
		}
	}
	return list
}

// onDevice is the page of a block in a pool, if it has one there.
func (b *oblock) onDevice(p int) (messages.PageID, bool) {
	page, tier, ok := b.places[p].Page()
	return page, ok && tier == messages.Primary
}

// lastFollow is the last effect that says which checkpoints follow which.
func lastFollow(a *protocol.Apply) protocol.Effect {
	i := len(a.Effects) - 1
	for a.Effects[i].Kind != protocol.Follow {
		i--
	}
	return a.Effects[i]
}

// TestFollowIsBounded: a checkpoint of a prefix of many prompts is not told of all of them.
func TestFollowIsBounded(t *testing.T) {
	const prompts = 1000
	tree := New(Config{TokensPerBlock: 2, Pools: []PoolShape{{}, {State: true}}, Follow: true})
	var a protocol.Apply
	fronts := func() (list []messages.PageID) {
		for _, at := range tree.Attached()[1] {
			list = append(list, at.Front)
		}
		return list
	}
	for i := range prompts {
		page := messages.PageID(2 * i)
		a.Stores = []protocol.StoreItem{{
			Tokens: []messages.Token{1, 2, 3, messages.Token(i)}, To: 4,
			Tables: [][]messages.PageID{{page, page + 1}}, Prompt: 4,
			FindEnd: true, HandOver: []messages.PageID{messages.NoPage, messages.PageID(i)},
		}}
		tree.Apply(&a)
		require.Equal(t, []messages.PageID{messages.NoPage, messages.PageID(i)}, lastFollow(&a).Pages)
	}
	require.NotContains(t, fronts(), protocol.AnyPage)
	m := protocol.Match{Items: []protocol.MatchItem{{Tokens: []messages.Token{1, 2, 3, 0, 5},
		Limit: 5}}}
	tree.Match(&m)
	a = protocol.Apply{Stores: []protocol.StoreItem{stateAt(prompts, 2, 1, 2)}}
	tree.Apply(&a)
	last := lastFollow(&a)
	require.Equal(t, messages.PageID(prompts), last.Pages[0])
	require.Greater(t, len(last.Pages), followLimit/2)
	require.LessOrEqual(t, len(last.Pages), followLimit+1)
	require.Contains(t, fronts(), protocol.AnyPage,
		"an audit does not compare what the pool was not told")
}

// TestFollowBehindARun: a new checkpoint is told of the next longer ones in all branches, also
// where the prefix goes on for some blocks before it branches.
func TestFollowBehindARun(t *testing.T) {
	tree := New(Config{TokensPerBlock: 1, Pools: []PoolShape{{}, {State: true}}, Follow: true})
	var a protocol.Apply
	store := func(page messages.PageID, tokens ...messages.Token) []messages.PageID {
		table := make([]messages.PageID, len(tokens))
		for i := range table {
			table[i] = 10*page + messages.PageID(i)
		}
		a = protocol.Apply{Stores: []protocol.StoreItem{{
			Tokens: tokens, To: len(tokens), Tables: [][]messages.PageID{table}, Prompt: len(tokens),
			FindEnd: true, HandOver: []messages.PageID{messages.NoPage, page},
		}}}
		tree.Apply(&a)
		return lastFollow(&a).Pages
	}
	store(1, 1, 2, 3, 4)
	store(2, 1, 2, 3, 5, 6)
	require.Equal(t, []messages.PageID{3, 1, 2}, store(3, 1))
}

// TestFollowBack: a checkpoint that comes back from host memory is told between which others it
// lies.
func TestFollowBack(t *testing.T) {
	tree := New(Config{TokensPerBlock: 1, Pools: []PoolShape{{}, {State: true}}, Host: true,
		Follow: true})
	var a protocol.Apply
	for n := 1; n <= 3; n++ {
		a.Stores = []protocol.StoreItem{{
			Tokens: []messages.Token{1, 2, 3}[:n], To: n,
			Tables: [][]messages.PageID{[]messages.PageID{0, 1, 2}[:n]}, Prompt: n,
			FindEnd: true, HandOver: []messages.PageID{messages.NoPage, messages.PageID(n)},
		}}
		tree.Apply(&a)
	}
	move := func(to protocol.Location) []protocol.Effect {
		a = protocol.Apply{Moves: []protocol.BlockMove{{Pool: 1, Block: 1, To: to}}}
		tree.Apply(&a)
		return a.Effects
	}
	require.Empty(t, move(protocol.OnHost(0)))
	effects := move(protocol.OnDevice(9))
	require.Len(t, effects, 3)
	require.Equal(t, []messages.PageID{1, 9}, effects[1].Pages)
	require.Equal(t, []messages.PageID{9, 3}, effects[2].Pages)
}

// TestFollowWithoutWhatLeaves: a checkpoint that comes back is not told of one that leaves the
// device, or gets another page, by a later move of the same message.
func TestFollowWithoutWhatLeaves(t *testing.T) {
	for name, to := range map[string]protocol.Location{
		"dropped": protocol.Nowhere, "offloaded": protocol.OnHost(1), "renumbered": protocol.OnDevice(8),
	} {
		t.Run(name, func(t *testing.T) {
			tree := New(Config{TokensPerBlock: 1, Pools: []PoolShape{{State: true}}, Host: true,
				Follow: true})
			var a protocol.Apply
			for n := 1; n <= 2; n++ {
				a.Stores = []protocol.StoreItem{{
					Tokens: []messages.Token{1, 2}[:n], To: n, Prompt: n,
					FindEnd: true, HandOver: []messages.PageID{messages.PageID(n)},
				}}
				tree.Apply(&a)
			}
			a = protocol.Apply{Moves: []protocol.BlockMove{{Block: 0, To: protocol.OnHost(0)}}}
			tree.Apply(&a)
			a = protocol.Apply{Moves: []protocol.BlockMove{
				{Block: 0, To: protocol.OnDevice(9)}, {Block: 1, To: to},
			}}
			tree.Apply(&a)
			for _, e := range a.Effects {
				require.NotContains(t, e.Pages, messages.PageID(2), "the page that has gone")
			}
			require.Equal(t, to == protocol.OnDevice(8),
				slices.Equal(lastFollow(&a).Pages, []messages.PageID{9, 8}))
		})
	}
}
