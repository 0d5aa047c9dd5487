package load

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/windows"
)

const maxSeqLen = 96

// bounds restrict the worlds that are drawn.
type bounds struct {
	noFaults bool // no failing copies, no panics
	auto     bool // only worlds that move memory by demand on their own
}

// plan is what a seed decides before anything runs.
type plan struct {
	seed  uint64
	hosts int
	steps int // of each host

	model kvactor.Model
	cache kvactor.CacheConfig
	pages []kvactor.PageCounts

	checked   bool // under the hazard checker
	ranks     int
	schedule  int64 // of the device
	rebalance bool  // Rebalance and Resize, hosts stand still meanwhile
	auto      int   // calls between moves by demand; 0: none
	room      int   // of the waiting room
	store     bool
	copies    bool // fail now and then
	panics    bool
	cancel    bool // contexts end
	chunked   bool // all prompts come in chunks
	beams     int  // the largest beam width
}

// drawPlan draws the plan of a seed.
func drawPlan(seed uint64, b bounds) (plan, error) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed: seed, hosts: 1 + r.IntN(4), steps: 60 + r.IntN(120), ranks: 1}
	p.checked = r.IntN(4) > 0
	if r.IntN(12) == 0 {
		p.ranks = 2
	}
	if r.IntN(2) == 0 {
		p.schedule = int64(r.IntN(1000))
	}
	p.drawModel(r, b)
	p.drawCache(r)
	switch n := r.IntN(4); {
	case b.auto || n == 0:
		p.auto = 1 + r.IntN(12)
	case n == 1:
		p.rebalance = true
	}
	p.copies, p.panics = !b.noFaults && r.IntN(3) == 0, !b.noFaults && r.IntN(3) == 0
	if r.IntN(4) == 0 || p.panics && r.IntN(2) == 0 {
		p.room = 1 + r.IntN(4) // a coordinator that fails while calls wait
	}
	p.store = r.IntN(6) == 0
	p.cancel, p.chunked = r.IntN(3) == 0, r.IntN(3) == 0
	p.beams = 1
	if !p.model.Recurrent() && r.IntN(2) == 0 {
		p.beams = 2 + r.IntN(2)
	}
	return p, p.drawPages(r)
}

// drawModel draws shapes: windows, chunks of attention, states, an encoder.
func (p *plan) drawModel(r *rand.Rand, b bounds) {
	layers := 1 + r.IntN(3)
	if b.auto {
		layers = 2 + r.IntN(2)
	}
	types := []struct {
		kvactor.DType
		dim int
	}{{kvactor.Float16, 4}, {kvactor.FP8, 8}, {kvactor.Float32, 3}, {kvactor.BFloat16, 5}}
	t := types[r.IntN(len(types))]
	m := kvactor.Model{HeadDim: t.dim, DType: t.DType, MaxSeqLen: maxSeqLen, Layout: kvactor.HND}
	if r.IntN(3) == 0 {
		m.Layout = kvactor.NHD
	}
	if r.IntN(6) == 0 {
		m.KVFactor = 1
	}
	for range layers {
		m.KVHeads = append(m.KVHeads, 1+r.IntN(2))
	}
	switch r.IntN(8) {
	case 0, 1:
		for range 1 + r.IntN(2) {
			state := kvactor.State{Layers: []int{len(m.KVHeads)}, Bytes: int64(8 * (1 + r.IntN(6)))}
			m.States = append(m.States, state)
			m.KVHeads = append(m.KVHeads, 0)
		}
	case 2:
		m.CrossLayers, m.CrossKVHeads, m.EncoderMaxLen = 1+r.IntN(layers), 1+r.IntN(2), 24
	}
	m.Layers = len(m.KVHeads)
	p.model = m
}

// drawCache draws the cache's configuration.
func (p *plan) drawCache(r *rand.Rand) {
	c := kvactor.DefaultCache()
	c.TokensPerBlock = 2 << r.IntN(3)
	if p.model.Layers > 1 && r.IntN(5) > 0 {
		window := c.TokensPerBlock*(1+r.IntN(4)) + r.IntN(3)
		if r.IntN(5) == 0 {
			p.model.AttentionChunk = make([]int, p.model.Layers)
			p.model.AttentionChunk[0] = c.TokensPerBlock * (1 + r.IntN(3))
		} else {
			c.MaxAttentionWindow = []int{window, maxSeqLen}
			if r.IntN(3) == 0 {
				c.MaxAttentionWindow = []int{window, 3 * window, maxSeqLen}
			}
			c.SinkTokenLength = r.IntN(2) * r.IntN(6)
		}
	}
	if p.model.Encodes() {
		c.CrossKVCacheFraction = 0.25
	}
	if p.model.Recurrent() && r.IntN(2) == 0 {
		c.StateCheckpointInterval = c.TokensPerBlock * (1 + r.IntN(4))
	}
	c.CopyOnPartialReuse, c.EnablePartialReuse = r.IntN(4) > 0, r.IntN(6) > 0
	c.OffloadAhead, c.OnboardBlocks = r.IntN(3) > 0, r.IntN(8) > 0
	if r.IntN(3) == 0 {
		c.EvictionPolicy = kvactor.Forecast
	}
	if r.IntN(5) == 0 {
		c.SaltQuotas, c.OtherSaltsQuota = map[string]float64{"a": 0.3, "b": 0.3}, 0.4
	}
	if r.IntN(3) == 0 {
		c.EventBufferMaxSize = 64
	}
	if r.IntN(4) == 0 {
		c.SecondaryOffloadMinPriority = r.IntN(60)
	}
	p.cache = c
}

// drawPages draws page counts around what the hosts need, so that some worlds lack pages
// all the time and others hardly ever.
func (p *plan) drawPages(r *rand.Rand) error {
	pools, err := windows.Pools(p.model, p.cache)
	if err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	if cross, ok := windows.CrossPool(p.model, p.cache); ok {
		pools = append(pools, cross)
	}
	tight, tiers := r.IntN(3), r.IntN(2)
	for i := range pools {
		n := 3 + p.hosts*(1+r.IntN(4))
		if pools[i].Kind != kvactor.KindState {
			n = maxSeqLen/p.cache.TokensPerBlock/(1+tight) + r.IntN(20*p.hosts)
		}
		counts := kvactor.PageCounts{Primary: n}
		if tiers > 0 {
			counts.Secondary = r.IntN(2 * n)
		}
		p.pages = append(p.pages, counts)
	}
	return nil
}

// String describes the plan in a line.
func (p *plan) String() string {
	parts := []string{fmt.Sprintf("%d hosts, %d steps, tpb %d, windows %v, heads %v, pages %v",
		p.hosts, p.steps, p.cache.TokensPerBlock, p.cache.MaxAttentionWindow, p.model.KVHeads, p.pages)}
	for _, f := range []struct {
		is   bool
		text string
	}{
		{p.model.AttentionChunk != nil, "chunked attention"}, {p.model.Recurrent(), "states"},
		{p.model.Encodes(), "encoder"}, {p.cache.EvictionPolicy == kvactor.Forecast, "forecast"},
		{p.cache.SaltQuotas != nil, "quotas"}, {p.checked, "checked"}, {p.ranks > 1, "two ranks"},
		{p.rebalance, "rebalance"}, {p.auto > 0, fmt.Sprintf("auto %d", p.auto)},
		{p.room > 0, fmt.Sprintf("room %d", p.room)}, {p.store, "store"}, {p.copies, "failing copies"},
		{p.panics, "panics"}, {p.cancel, "contexts end"}, {p.chunked, "chunks"}, {p.beams > 1, "beams"},
	} {
		if f.is {
			parts = append(parts, f.text)
		}
	}
	return strings.Join(parts, ", ")
}
