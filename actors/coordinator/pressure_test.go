package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// twoPools is a coordinator of a limited and a full pool, 64 pages each.
func twoPools() *Coordinator {
	pools := []windows.Pool{
		{ID: 0, Name: "w8h1", Window: 8, KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{0},
			TokensPerBlock: 4},
		{ID: 1, Name: "wfullh1", KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{1},
			TokensPerBlock: 4},
	}
	return New(Config{Pools: pools, Counts: []windows.PageCounts{{Primary: 64}, {Primary: 64}},
		TokensPerBlock: 4}, nil)
}

func TestDemand(t *testing.T) {
	lacking := func(limited, full int) protocol.MatchItem {
		return protocol.MatchItem{Matched: 100, Reach: 300, Lacks: []int{limited, full}}
	}
	hit := protocol.MatchItem{Matched: 300, Reach: 300, Lacks: []int{0, 0}}
	for name, c := range map[string]struct {
		matches []protocol.MatchItem
		refused *messages.Refusal
		evicted [2]int64
		useful  [2]int  // pages that a match could have used, evicted before the prompts
		again   int     // tokens of each prompt that all pools have evicted
		full    float64 // fraction asked for; 0: none
	}{
		"nothing happened": {},
		"all was found": {matches: []protocol.MatchItem{hit, hit},
			evicted: [2]int64{50, 60}},
		"full attention forgets first": {matches: []protocol.MatchItem{lacking(0, 50)},
			full: 0.5 + 6.0/128},
		"the window forgets first": {matches: []protocol.MatchItem{lacking(2, 0)},
			full: 0.5 - 6.0/128},
		"both forget": {matches: []protocol.MatchItem{lacking(2, 50)}},
		"too little to matter": {matches: []protocol.MatchItem{{Matched: 299, Reach: 300,
			Lacks: []int{0, 1}}}},
		"pages were refused": {refused: refusals.OutOfPages("w8h1", 30, 10),
			full: 0.5 - 20.0/128},
		"another refusal":                {refused: refusals.New(messages.ErrTooLong, "long")},
		"one evicts, the other is empty": {evicted: [2]int64{0, 9}, full: 0.5 + 1.0/8},
		"both evict, no prompt needs it": {evicted: [2]int64{1, 9}},
		"one evicts what was useful": {matches: []protocol.MatchItem{hit}, again: 300,
			useful: [2]int{2, 40}, full: 0.5 + 8.0/128},
		"both evict what was useful": {matches: []protocol.MatchItem{hit}, again: 300,
			useful: [2]int{30, 40}},
		"none wants what was useful": {matches: []protocol.MatchItem{hit}, useful: [2]int{2, 40}},
	} {
		t.Run(name, func(t *testing.T) {
			k := twoPools()
			for p, n := range c.useful {
				k.pressure.noteVictims(p, append(make([]protocol.Victim, n), protocol.Victim{Useless: true}))
			}
			for i := range c.matches {
				k.pressure.noteMatch(&c.matches[i], 1000, loss{evicted: c.again})
			}
			if c.refused != nil {
				k.pressure.noteRefusal(c.refused)
			}
			for p, n := range c.evicted {
				k.stats.Pools[p].Evicted = n
			}
			got := k.pressure.demand(nil)
			if c.full == 0 {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			full := 0.5 + float64(got.pages)/128
			if got.from == 1 {
				full = 0.5 - float64(got.pages)/128
			}
			assert.InDelta(t, c.full, full, 1e-9)
			assert.Equal(t, 1, got.from+got.to)
		})
	}
}

// A move is half of what the difference of costs is of all prompt tokens, at most a quarter, and
// what is held stays.
func TestDemandSteps(t *testing.T) {
	k := twoPools()
	want := func(pool int, cost, step float64) {
		t.Helper()
		k.pressure.prompt, k.pressure.cost[pool], k.pressure.cost[1-pool] = 1000, cost+10, 10
		got := k.pressure.demand(nil)
		require.NotNil(t, got)
		assert.Equal(t, poolMove{from: 1 - pool, to: pool, pages: int(step * 64), gained: int(step * 64)},
			*got)
	}
	want(1, 900, 1.0/4)
	want(1, 500, 1.0/4)
	want(0, 250, 1.0/8)
	want(1, 125, 1.0/16)
	k.counts.device[0].Used, k.counts.device[0].Held = 62, 60
	want(1, 500, 2.0/64)
	k.counts.device[0].Used = 64
	k.pressure.prompt, k.pressure.cost[1] = 1000, 500
	assert.Nil(t, k.pressure.demand(nil), "all is held")
	k.counts.device[0].Used = 0
	k.pressure.prompt, k.pressure.cost[1] = 1, 1
	assert.Nil(t, k.pressure.demand(nil), "no evidence yet")
}

// Memory moves only where it becomes pages, and none is lost on the way: what is less than a page
// is there for the next move.
func TestWhatMovesBecomesPages(t *testing.T) {
	pools := []windows.Pool{
		{ID: 0, Name: "w8h1", Window: 8, KVHeads: 1, HeadDim: 3, DType: windows.Int8, Layers: []int{0},
			TokensPerBlock: 4},
		{ID: 1, Name: "w16h1", Window: 16, KVHeads: 1, HeadDim: 7, DType: windows.Int8, Layers: []int{1},
			TokensPerBlock: 4},
		{ID: 2, Name: "wfullh1", KVHeads: 1, HeadDim: 5, DType: windows.Int8, Layers: []int{2},
			TokensPerBlock: 4},
	}
	k := New(
		Config{Pools: pools, Counts: []windows.PageCounts{{Primary: 64}, {Primary: 64}, {Primary: 64}},
			TokensPerBlock: 4, MaxPages: 90}, nil)
	d := k.pressure
	budget := d.total()
	for i := range 200 {
		d.prompt, d.cost[i*i%3] = 1e6, 1e6
		m := d.demand(nil)
		if m == nil {
			continue
		}
		before := d.totals()
		after := d.counts(m)
		assert.Greater(t, after[m.to], before[m.to])
		assert.LessOrEqual(t, after[m.to], 90)
		for p, n := range after {
			k.counts.device[p].Total, k.counts.device[p].Free = n, n
		}
		spare := budget - d.total()
		require.GreaterOrEqual(t, spare, int64(0))
		require.Less(t, spare, int64(7*8), "less than a page of the largest pool")
	}
}

// A pool that may have no more pages is given none, and nothing is taken from the others.
func TestACappedPoolIsGivenNothing(t *testing.T) {
	k := twoPools()
	k.config.MaxPages = 64
	k.pressure.prompt, k.pressure.cost[0] = 1e6, 1e6
	assert.Nil(t, k.pressure.demand(nil))
}

// A request that was refused for want of pages gets them by the next move.
func TestDemandMovesWhatWasLacking(t *testing.T) {
	k := twoPools()
	k.pressure.noteRefusal(refusals.OutOfPages("wfullh1", 100, 60))
	got := k.pressure.demand(nil)
	require.NotNil(t, got)
	assert.Equal(t, poolMove{from: 0, to: 1, pages: 40, gained: 40}, *got)
}

// What a pool evicts because a rebalance makes it smaller is no demand for its pages.
func TestARebalanceIsNoDemand(t *testing.T) {
	k := twoPools()
	r := &rebalance{shared: k.shared, request: &messages.Rebalance{},
		resize: make([]protocol.ResizePool, 2), pages: []int{100, 28}}
	k.pressure.noteVictims(1, make([]protocol.Victim, 36))
	r.tellMoves()
	assert.Equal(t, []float64{0, 0}, k.pressure.useful)
}

// Where a prompt computes again what only the states were missing for, the state pool has cost it,
// and what no checkpoint had been made for has cost nobody anything.
func TestDemandForStates(t *testing.T) {
	pools := []windows.Pool{
		{ID: 0, Name: "wfullh1", KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{0},
			TokensPerBlock: 4},
		{ID: 1, Name: "state", Kind: windows.KindState, StateBytes: 32, Checkpoints: true,
			Layers: []int{1}, TokensPerBlock: 4},
	}
	for name, c := range map[string]struct {
		lost   loss
		useful [2]int // pages that a match could have used, evicted
		to     int    // −1: none
	}{
		"no state was made":         {loss{unmade: 500}, [2]int{9, 1}, -1},
		"the state was evicted":     {loss{states: 500, unmade: 100}, [2]int{0, 1}, 1},
		"attention was evicted":     {loss{evicted: 500}, [2]int{9, 0}, 0},
		"both were, one far more":   {loss{evicted: 100, states: 500}, [2]int{8, 1}, 1},
		"both were, about as much":  {loss{evicted: 400, states: 500}, [2]int{9, 0}, -1},
		"states turn over as often": {loss{evicted: 500}, [2]int{20, 4}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			k := New(Config{Pools: pools, Counts: []windows.PageCounts{{Primary: 64}, {Primary: 8}},
				TokensPerBlock: 4}, nil)
			for p, n := range c.useful {
				k.pressure.noteVictims(p, make([]protocol.Victim, n))
			}
			k.pressure.noteMatch(&protocol.MatchItem{Reach: 600, Lacks: []int{1, 1}}, 1000, c.lost)
			got := k.pressure.demand(nil)
			if c.to < 0 {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, c.to, got.to)
		})
	}
}
