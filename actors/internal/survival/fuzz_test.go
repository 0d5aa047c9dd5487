package survival_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// fuzzed is an engine without actors, so that a panic is the test's own, and
// the bytes that say what is asked of it.
type fuzzed struct {
	*direct.Engine
	t       *testing.T
	bytes   []byte
	now     time.Duration
	pages   int
	running []messages.SequenceID
	pins    []messages.PinID
	admits  []*messages.Admit // answered, refused, or in the waiting room
}

const fuzzedMax = 200 // the longest sequence

// newFuzzed takes the first bytes for the configuration.
func newFuzzed(t *testing.T, bytes []byte) *fuzzed {
	f := &fuzzed{t: t, bytes: bytes}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = tpb
	cache.MaxAttentionWindow = [][]int{{fuzzedMax}, {9}, {fuzzedMax, 6}, {6, 9, fuzzedMax}}[f.below(4)]
	cache.SinkTokenLength = [4]int{0, 0, 1, 6}[f.below(4)]
	switches := f.byte()
	cache.EnableBlockReuse, cache.EnablePartialReuse, cache.CopyOnPartialReuse = switches%16 > 0,
		switches%8 > 0, switches%4 > 0
	model := windows.Model{Layers: len(cache.MaxAttentionWindow), KVHeads: []int{1}, HeadDim: 1,
		DType: windows.Int8, MaxSeqLen: fuzzedMax}
	require.NoError(t, cache.Validate(model))
	pools, err := windows.Pools(model, cache)
	require.NoError(t, err)
	f.pages = 4 + f.below(12)
	count := windows.PageCounts{Primary: f.pages, Secondary: f.below(12)}
	config := coordinator.Config{
		Pools: pools, TokensPerBlock: tpb, MaxSeqLen: fuzzedMax, WaitingRoom: f.below(2) * f.below(4),
		Reuse: cache.EnableBlockReuse, Partial: cache.EnablePartialReuse,
		CopyOnPartial: cache.CopyOnPartialReuse,
		Divide: func(fractions map[string]float64, bytes int64) ([]int, error) {
			c := cache
			c.PoolFractions = fractions
			return windows.Divide(pools, model, c, bytes)
		},
	}
	config.Ahead = f.below(2) == 0
	f.Engine = direct.New(config, f.cores(pools, &config, count))
	f.Clock = func() time.Duration { return f.now }
	return f
}

func (f *fuzzed) cores(
	pools []windows.Pool, config *coordinator.Config, count windows.PageCounts,
) direct.Cores {
	var c direct.Cores
	var shapes []tree.PoolShape
	host := offloader.Config{MinPriority: messages.Priority(f.below(101)),
		Passed: func(messages.Ticket) bool { return true }}
	for _, p := range pools {
		config.Counts = append(config.Counts, count)
		shapes = append(shapes, tree.PoolShape{Window: p.Window, Sink: p.Sink, Chunk: p.Chunk})
		c.Pools = append(c.Pools, pool.New(p.Name, count.Primary))
		host.Pools = append(host.Pools, offloader.PoolConfig{
			Name: p.Name, HostPages: count.Secondary, PageBytes: p.PageBytes(),
			Regions:        p.Regions(),
			TokensPerBlock: tpb,
		})
	}
	c.Tree = tree.New(tree.Config{TokensPerBlock: tpb, Pools: shapes, Events: true,
		Host: count.Secondary > 0})
	c.Offloader = offloader.New(host)
	return c
}

// byte is the next one; 0 at the end.
func (f *fuzzed) byte() int {
	if len(f.bytes) == 0 {
		return 0
	}
	b := f.bytes[0]
	f.bytes = f.bytes[1:]
	return int(b)
}

func (f *fuzzed) below(n int) int { return f.byte() % n }

// edges are numbers at the ends of their types.
var edges = []int{-1, math.MinInt, math.MaxInt, math.MaxInt32, math.MinInt32, math.MaxInt - 3,
	math.MaxInt32 + 1, fuzzedMax, fuzzedMax + 1, 1 << 20}

// number is mostly small and reasonable.
func (f *fuzzed) number() int {
	if b := f.byte(); b < 230 {
		return b % 40
	}
	return edges[f.below(len(edges))]
}

func (f *fuzzed) tokens() []messages.Token {
	n, prefix, cut := f.below(48), f.below(3), f.below(24)
	list := run(0, n)
	for i := range list {
		if i >= cut {
			list[i] += messages.Token(100 * prefix)
		}
	}
	if n > 0 && f.byte() == 255 {
		list[f.below(n)] = messages.Token(-f.below(3))
	}
	return list
}

func (f *fuzzed) namespace() messages.Namespace {
	return []messages.Namespace{{}, {}, {}, {Salt: "a"}, {LoRA: "a", HasLoRA: true}}[f.below(5)]
}

func (f *fuzzed) items() []messages.MultimodalItem {
	var list []messages.MultimodalItem
	for range max(0, f.below(6)-3) {
		list = append(list, messages.MultimodalItem{Hash: [32]byte{byte(f.below(2))}, Start: f.number(),
			Length: f.number()})
	}
	return list
}

func (f *fuzzed) prefix() messages.Prefix {
	return messages.Prefix{Namespace: f.namespace(), Tokens: f.tokens(), Multimodal: f.items()}
}

func (f *fuzzed) retention() *messages.Retention {
	if f.below(3) > 0 {
		return nil
	}
	r := &messages.Retention{}
	for range f.below(3) {
		r.Ranges = append(r.Ranges, messages.RetentionRange{
			Start: f.number(), End: f.number() - 1, Priority: messages.Priority(f.below(110)),
			Duration: time.Duration(f.number()) * time.Millisecond,
		})
	}
	if f.below(2) == 0 {
		r.Decode = &messages.DecodeRetention{Priority: messages.Priority(f.below(110)),
			Duration: time.Duration(f.number()) * time.Millisecond}
	}
	return r
}

func (f *fuzzed) sequence() messages.SequenceID {
	if len(f.running) == 0 || f.byte() > 250 {
		return messages.SequenceID(f.number())
	}
	return f.running[f.below(len(f.running))]
}

// request decodes one; nil if the bytes name none.
func (f *fuzzed) request() messages.Request {
	switch f.below(18) {
	case 0, 1, 2, 3:
		return f.admit()
	case 4, 5:
		m := &messages.Commit{}
		for range f.below(3) {
			m.Steps = append(m.Steps, messages.CommitStep{Sequence: f.sequence(), Computed: f.number(),
				SeparateRequest: f.below(2) == 0})
		}
		return m
	case 6, 7, 8:
		return f.extend()
	case 9, 10:
		m := &messages.Release{}
		for range f.below(3) {
			m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: f.sequence(), Discard: f.below(4) == 0})
		}
		return m
	case 11:
		m := &messages.Rewind{}
		for range f.below(3) {
			m.Steps = append(m.Steps, messages.RewindStep{Sequence: f.sequence(), Tokens: f.number()})
		}
		return m
	case 12:
		m := &messages.Fork{}
		for range f.below(3) {
			count := f.number()
			if count > 4 && count < 1<<16 {
				count %= 4
			}
			m.Steps = append(m.Steps, messages.ForkStep{Sequence: f.sequence(), Count: count})
		}
		return m
	default:
		return f.rare()
	}
}

func (f *fuzzed) admit() messages.Request {
	m := &messages.Admit{}
	for range f.below(3) + 1 {
		q := messages.AdmitRequest{Namespace: f.namespace(), Tokens: f.tokens(), Multimodal: f.items(),
			Retention: f.retention()}
		switch f.below(5) {
		case 0:
			q.ChunkTokens = f.number() / tpb * tpb
		case 1:
			q.BeamWidth = min(f.number(), 3)
		case 2:
			q.Session = "s"
		}
		m.Requests = append(m.Requests, q)
	}
	return m
}

func (f *fuzzed) extend() messages.Request {
	m := &messages.Append{}
	for range f.below(3) {
		s := messages.AppendStep{Sequence: f.sequence(), Computed: f.number()}
		if f.below(4) == 0 {
			for range f.below(4) {
				s.Beams = append(s.Beams, messages.BeamStep{Parent: f.below(3),
					Token: messages.Token(f.byte())})
			}
		} else {
			s.Tokens = run(f.byte(), f.below(6))
		}
		m.Steps = append(m.Steps, s)
	}
	return m
}

// rare are the requests that no engine step makes.
func (f *fuzzed) rare() messages.Request {
	switch f.below(9) {
	case 0:
		return &messages.Lookup{Prefix: f.prefix()}
	case 1:
		return &messages.PinPrefix{Prefix: f.prefix()}
	case 2:
		pin := messages.PinID(f.number())
		if len(f.pins) > 0 {
			pin, f.pins = f.pins[0], f.pins[1:]
		}
		return &messages.UnpinPrefix{Pin: pin}
	case 3:
		return &messages.Prefetch{Prefix: f.prefix()}
	case 4:
		p := f.prefix()
		return &messages.Invalidate{Selector: []messages.Selector{{Prefix: &p}, {Prefix: &p},
			{Session: "s"}, {Salt: "a"}, {}}[f.below(5)]}
	case 5:
		return &messages.Reset{}
	case 6:
		return &messages.ReadScales{}
	case 7:
		f.now += time.Duration(f.below(50)) * time.Millisecond
		return &protocol.ReadContents{}
	default:
		if len(f.Pools) < 2 {
			return &messages.Rebalance{}
		}
		share := map[string]float64{}
		for _, p := range f.Pools[1:] {
			share[p.Name()] = 0.8 / float64(len(f.Pools)-1)
		}
		share[f.Pools[0].Name()] = 0.2
		return &messages.Rebalance{Fractions: []map[string]float64{nil, share,
			{"x": math.NaN()}}[f.below(3)]}
	}
}

// learn takes over what a request has made.
func (f *fuzzed) learn(request messages.Request) {
	switch m := request.(type) {
	case *messages.Admit:
		f.admits = append(f.admits, m)
	case *messages.Fork:
		for i := range m.Results {
			f.running = append(f.running, m.Results[i].Forks...)
		}
	case *messages.PinPrefix:
		if m.Err == nil && m.Pinned.Tokens > 0 {
			f.pins = append(f.pins, m.Pinned.Pin)
		}
	case *messages.Release:
		for i, s := range m.Steps {
			if m.Results[i].Err == nil {
				f.forget(s.Sequence)
			}
		}
	}
	for _, m := range f.admits { // one may have left the waiting room
		for i := range m.Results {
			if a := &m.Results[i]; a.Err == nil && a.Sequence != 0 {
				f.running = append(f.running, a.Sequence)
				a.Sequence = 0
			}
		}
	}
}

func (f *fuzzed) forget(id messages.SequenceID) {
	for i := range f.running {
		if f.running[i] == id {
			f.running = append(f.running[:i], f.running[i+1:]...)
			return
		}
	}
}

// do serves a request and checks every core: those that an audit asks for, and
// the offloader.
func (f *fuzzed) do(request messages.Request) {
	f.Do(request)
	f.learn(request)
	audit := &inspect.Check{}
	f.Do(audit)
	if err := errors.Join(audit.Err, f.Cores.Offloader.Check()); err != nil {
		f.t.Fatalf("after %T: %v", request, err)
	}
}

// end releases everything: then no one waits, nothing is held or reserved, and
// all that a pool has can be taken.
func (f *fuzzed) end() {
	for _, pin := range f.pins {
		f.do(&messages.UnpinPrefix{Pin: pin})
	}
	for len(f.running) > 0 {
		f.do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: f.running[0]}}})
	}
	least := math.MaxInt
	for _, p := range f.Pools {
		require.Zero(f.t, p.Counts().Used, "%s", p)
		least = min(least, p.Counts().Total)
	}
	m := &messages.Admit{Requests: []messages.AdmitRequest{prompt(1000, least*tpb)}}
	f.do(m)
	require.NoError(f.t, m.Results[0].Err)
	require.Len(f.t, f.running, 1)
}

func fuzzRequests(t *testing.T, bytes []byte) {
	f := newFuzzed(t, bytes)
	for range 60 {
		if len(f.bytes) == 0 {
			break
		}
		f.do(f.request())
	}
	f.end()
}

// randomBytes are a function of the seed.
func randomBytes(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 13))
	bytes := make([]byte, 40+random.IntN(900))
	for i := range bytes {
		bytes[i] = byte(random.UintN(256))
	}
	return bytes
}

func TestRequestsOfAnyKind(t *testing.T) {
	for seed := range uint64(300) {
		if !t.Run("", func(t *testing.T) {
			t.Logf("seed %d", seed)
			fuzzRequests(t, randomBytes(seed))
		}) {
			break
		}
	}
}

func FuzzRequests(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(fuzzRequests)
}
