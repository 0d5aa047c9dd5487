package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/windows"
)

// setup is what a seed makes of an engine and its hosts.
type setup struct {
	model       windows.Model
	cache       windows.Config
	pools       []windows.Pool
	pages       []windows.PageCounts
	hosts       int
	perHost     int // sequences
	longest     int // prompt, in tokens
	inFlight    int // calls
	deviceSeed  int64
	calm        bool // no faults at all
	encodes     bool // an encoder–decoder model; the cross pool is the last one
	recurrent   bool // a model with recurrent layers; the state pool is the last one
	hasStore    bool // a store, which is none too good
	save        actors.SavePolicy
	maxRestarts int
	ranks       int // devices; 0: one that is no group
}

// unlimited is a restart limit that no run reaches.
const unlimited = 1 << 30

// encodes reports whether a seed is of an encoder–decoder model: one in seven is,
// and none of those that tests play for what they have found.
func encodes(seed uint64) bool { return seed%7 == 4 }

// recurrent reports whether a seed is of a model with recurrent layers: about a third is,
// and none of those that tests play for what they have found without such layers.
func recurrent(seed uint64) bool {
	n := seed % 117
	return !encodes(seed) && (n >= 78 && n < 105 || n >= 48 && n < 57 || n >= 32 && n < 40 ||
		n >= 69 && n < 73)
}

// statesAlone reports whether a seed is of a model that has recurrent layers and no others: those
// of every seventh thousand are, none of which tests play for what they have found with attention.
func statesAlone(seed uint64) bool { return recurrent(seed) && seed/1000%7 == 3 }

// groupOf is the number of devices of a seed, 0 for one that is no group: about a quarter
// of the seeds have a group, and none of those that tests play for what they have found.
func groupOf(seed uint64) int {
	if n := seed % 115; (n < 80 || n >= 106) && (n < 38 || n >= 46) {
		return 0
	}
	return 2 << (seed % 3)
}

// stored reports whether a seed has a store: one in ten has, none of those that tests play
// for what they have found, and all from four thousand millions on.
func stored(seed uint64) bool {
	return (seed >= 4_000_000_000 || seed%1000 >= 600 && seed%1000 < 700) && !encodes(seed)
}

// forecasts reports whether a seed has the eviction policy forecast: every fifth thousand has, and
// none of those that tests play for what they have found.
func forecasts(seed uint64) bool { return seed/1000%5 == 2 }

// drawSetup picks a configuration that stays small and crowded.
func drawSetup(r *rand.Rand, encodes bool) setup {
	tpb := 2 << r.IntN(3)
	maxLen := tpb * (10 + r.IntN(12))
	s := setup{
		hosts: 2 + r.IntN(12), perHost: 1 + r.IntN(4), longest: max(4, maxLen*2/3),
		inFlight: 1 << 12, deviceSeed: int64(r.IntN(4)) * r.Int64N(1<<40), calm: r.IntN(6) == 0,
		maxRestarts: unlimited,
	}
	if r.IntN(4) == 0 {
		s.inFlight = 2 + r.IntN(8)
	}
	if !s.calm && r.IntN(12) == 0 {
		s.maxRestarts = 2 + r.IntN(4)
	}
	s.model = windows.Model{
		Layers: 1 + r.IntN(4), KVHeads: []int{1 + r.IntN(2)}, HeadDim: 2 + r.IntN(4), DType: "float16",
		MaxSeqLen: maxLen,
	}
	if r.IntN(4) == 0 {
		s.model.KVHeads = nil
		for range s.model.Layers {
			s.model.KVHeads = append(s.model.KVHeads, 1+r.IntN(2))
		}
	}
	s.cache = drawCache(r, tpb, maxLen)
	pools, err := windows.Pools(s.model, s.cache)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	s.pools = pools
	room, host := 12+r.IntN(40), r.IntN(30)*r.IntN(2)+r.IntN(8)
	for range pools {
		s.pages = append(s.pages, windows.PageCounts{Primary: room/2 + r.IntN(room),
			Secondary: host/2 + r.IntN(host+1)})
	}
	if encodes {
		addEncoder(&s, r, room, host)
	}
	return s
}

// addStates adds a recurrent layer to the model. A working page for each sequence may be
// there, or not.
func addStates(s *setup, r *rand.Rand) {
	s.recurrent = true
	if len(s.model.KVHeads) == 1 {
		s.model.KVHeads = slices.Repeat(s.model.KVHeads, s.model.Layers)
	}
	s.model.KVHeads = append(slices.Clone(s.model.KVHeads), 0)
	s.model.States = []windows.State{{Layers: []int{s.model.Layers}, Bytes: int64(8 + r.IntN(64))}}
	s.model.Layers++
	s.cache.StateCheckpointInterval = s.cache.TokensPerBlock * r.IntN(3)
	pools, err := windows.Pools(s.model, s.cache)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	s.pools = pools
	s.pages = append(s.pages, windows.PageCounts{Primary: 2 + r.IntN(3*s.hosts),
		Secondary: r.IntN(2) * r.IntN(12)})
}

// dropAttention leaves the recurrent layer alone in the model.
func dropAttention(s *setup) {
	state := s.model.States[0]
	state.Layers = []int{0}
	s.model = windows.Model{Layers: 1, KVHeads: []int{0}, States: []windows.State{state},
		MaxSeqLen: s.model.MaxSeqLen}
	last := len(s.pools) - 1
	s.pools, s.pages = slices.Clone(s.pools[last:]), s.pages[last:]
	s.pools[0].Layers = state.Layers
}

// addEncoder makes the model one with an encoder, whose inputs are about as long
// as prompts and have about as many pages.
func addEncoder(s *setup, r *rand.Rand, room, host int) {
	s.encodes = true
	s.model.CrossLayers, s.model.CrossKVHeads = 1+r.IntN(s.model.Layers), 1+r.IntN(2)
	s.model.EncoderMaxLen = 2 + r.IntN(4*s.cache.TokensPerBlock)
	s.cache.CrossKVCacheFraction = 0.5
	own, _ := windows.CrossPool(s.model, s.cache)
	s.pools = append(s.pools, own)
	s.pages = append(s.pages, windows.PageCounts{Primary: room/2 + r.IntN(room),
		Secondary: host/2 + r.IntN(host+1)})
}

// decoder is the number of the decoder's pools.
func (s *setup) decoder() int {
	if s.encodes {
		return len(s.pools) - 1
	}
	return len(s.pools)
}

func drawCache(r *rand.Rand, tpb, maxLen int) windows.Config {
	often := func(of int) bool { return r.IntN(of) > 0 }
	c := windows.DefaultConfig()
	c.TokensPerBlock = tpb
	for range 1 + r.IntN(3) {
		w := maxLen
		if r.IntN(2) == 0 {
			w = 2 + r.IntN(6*tpb)
		}
		c.MaxAttentionWindow = append(c.MaxAttentionWindow, w)
	}
	if r.IntN(3) == 0 {
		c.SinkTokenLength = r.IntN(3 * tpb)
	}
	c.EnablePartialReuse, c.CopyOnPartialReuse = often(7), often(4)
	c.EnableBlockReuse, c.OnboardBlocks, c.OffloadAhead = often(25), often(12), often(3)
	c.SecondaryOffloadMinPriority = []int{0, 35, 35, 50}[r.IntN(4)]
	if r.IntN(3) == 0 {
		c.SaltQuotas = map[string]float64{"a": 0.1 + 0.4*r.Float64()}
		c.OtherSaltsQuota = float64(r.IntN(2)) * r.Float64()
	}
	c.EventBufferMaxSize = 1 << 18
	if r.IntN(5) == 0 {
		c.EventBufferMaxSize = 4 + r.IntN(60)
	}
	return c
}

// String tells the setup in one line.
func (s *setup) String() string {
	text := fmt.Sprintf(
		"tpb %d, windows %v, sink %d, max %d tokens, %d hosts of %d sequences, reuse %v partial %v "+
			"copy %v onboard %v ahead %v, min priority %d, quotas %v and %.2f, events %d, in flight %d, "+
			"calm %v;",
		s.cache.TokensPerBlock, s.cache.MaxAttentionWindow, s.cache.SinkTokenLength, s.model.MaxSeqLen,
		s.hosts, s.perHost,
		s.cache.EnableBlockReuse, s.cache.EnablePartialReuse, s.cache.CopyOnPartialReuse,
		s.cache.OnboardBlocks, s.cache.OffloadAhead,
		s.cache.SecondaryOffloadMinPriority, s.cache.SaltQuotas, s.cache.OtherSaltsQuota,
		s.cache.EventBufferMaxSize, s.inFlight, s.calm)
	if s.recurrent {
		text += fmt.Sprintf(" recurrent, checkpoints at %d;", s.cache.StateCheckpointInterval)
	}
	if s.ranks > 0 {
		text += fmt.Sprintf(" %d ranks;", s.ranks)
	}
	if s.hasStore {
		text += fmt.Sprintf(" a store, save policy %d;", s.save)
	}
	if s.encodes {
		text += fmt.Sprintf(" encoder inputs up to %d tokens;", s.model.EncoderMaxLen)
	}
	for i, p := range s.pools {
		text += fmt.Sprintf(" %s %d+%d pages", p.Name, s.pages[i].Primary, s.pages[i].Secondary)
	}
	return text
}

// profiles are the links of the ranks of a group, in turn: a group is to be right with
// devices of different speeds.
var profiles = []string{"h100-pcie5", "a100-pcie4", "gh200-c2c"}

// simulate makes a device, or a group of devices if there are ranks, each of which has a
// hazard checker of its own.
func simulate(c sim.Config, ranks int, hazard func(string)) (simgroup.Simulated, error) {
	if ranks == 0 {
		return sim.New(c)
	}
	return simgroup.New(simgroup.Config{
		Config: c, Ranks: ranks, Profiles: profiles,
		Wrap: func(_ int, d *sim.Device) gpu.Device {
			return check.Wrap(d, check.Options{OnProblem: hazard})
		},
	})
}

// inspectors look at the pages of each rank.
func inspectors(d simgroup.Simulated) (look []host.Inspector, err error) {
	for _, s := range simgroup.Sims(d) {
		stream, err := s.NewStream("inspect")
		if err != nil {
			return nil, err
		}
		look = append(look, host.Inspector{Launcher: s, Stream: stream, Drain: s.Drain})
	}
	return look, nil
}
