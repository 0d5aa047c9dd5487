package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

const (
	tpb  = 4   // tokens per block, everywhere
	full = 512 // the longest sequence, hence full attention as a window
)

// testing is what the tests of this package need: a *testing.T or a *rapid.T.
type testing interface {
	require.TestingT
	Helper()
}

// setup is what a world is made of.
type setup struct {
	windows []int                // of the layers, nil: one layer of full attention
	sink    int                  // tokens
	pages   []windows.PageCounts // by PoolID; a single one is for all
	change  func(*windows.Config)
	waiting int  // batches that may wait for pages
	ahead   bool // offload ahead of demand
	encoder bool // an encoder–decoder model; the cross pool is the last
	states  bool // a recurrent layer behind the others
	store   *coordinator.StoreConfig
	least   messages.Priority // of contents that the store takes
	every   int               // rounds between rebalances by demand
	// maxTokens limits attention pools; 0: nothing does
	maxTokens int
}

// world is the coordinator over real cores and over memory that copies at once,
// with a host that writes every token. Each request is followed by all checks.
type world struct {
	t testing
	*direct.Engine
	cache      windows.Config
	shapes     []windows.Pool
	layouts    []host.Layout
	memory     memory
	now        time.Duration
	running    map[messages.SequenceID]*hostSequence
	quiet      bool // no checks after each request: a test is about many
	unchecked  bool // check does nothing: another world has been checked with the same requests
	kernelsRan bool // write does nothing: the kernels have run before the request that is repeated
	// moved hears of rebalances by demand; nil: it is not told.
	moved     func(messages.Rebalanced)
	recovered func(coordinator.Recovered) // hears of recoveries; nil: it is not told
}

// hostSequence is what the host knows of a running sequence.
type hostSequence struct {
	id       messages.SequenceID
	ns       messages.Namespace
	tokens   []messages.Token
	beams    [][]host.Chain
	prompt   int
	computed int
	chunk    int
	// checkpoints are the positions at which commits end.
	checkpoints []int

	input   []host.Chain // of the encoder's tokens
	reused  int          // of them, at admission
	encoded bool         // the keys and values of the input are in the pages
}

func (l *hostSequence) length() int { return len(l.beams[0]) }

// newWorld makes an engine without actors.
func newWorld(t testing, s setup) *world {
	t.Helper()
	if s.windows == nil {
		s.windows = []int{full}
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.SinkTokenLength = tpb, s.windows, s.sink
	if s.change != nil {
		s.change(&cache)
	}
	model := windows.Model{Layers: len(s.windows), KVHeads: []int{1}, HeadDim: 4,
		DType: windows.Float16, MaxSeqLen: full}
	if s.states {
		cache.MaxAttentionWindow = append(slices.Clone(s.windows), full)
		model.KVHeads = append(slices.Repeat(model.KVHeads, model.Layers), 0)
		model.States = []windows.State{{Layers: []int{model.Layers}, Bytes: 24}}
		model.Layers++
	}
	if s.encoder {
		model.CrossLayers, model.CrossKVHeads, model.EncoderMaxLen, cache.CrossKVCacheFraction = 1, 1,
			full, 0.5
	}
	require.NoError(t, cache.Validate(model))
	own, err := windows.Pools(model, cache)
	require.NoError(t, err)
	pools := own
	if cross, encodes := windows.CrossPool(model, cache); encodes {
		pools = append(slices.Clone(own), cross)
	}
	if len(s.pages) == 1 {
		s.pages = slices.Repeat(s.pages, len(pools))
	}
	require.Len(t, s.pages, len(pools))
	w := &world{t: t, cache: cache, shapes: pools, running: map[messages.SequenceID]*hostSequence{},
		memory: newMemory(pools)}
	for _, p := range pools {
		w.layouts = append(w.layouts, host.NewLayout(p))
	}
	config := coordinator.Config{
		Pools: pools, Counts: s.pages, TokensPerBlock: tpb, MaxSeqLen: full,
		Reuse: cache.EnableBlockReuse, Onboard: cache.OnboardBlocks, Partial: cache.EnablePartialReuse,
		CopyOnPartial: cache.CopyOnPartialReuse,
		Tenants:       cache.Tenants(), WaitingRoom: s.waiting, Ahead: s.ahead,
		Divide: func(fractions map[string]float64, bytes int64) ([]int, error) {
			c := cache
			c.PoolFractions = fractions
			return windows.Divide(own, model, c, bytes)
		},
		EncoderMaxLen: model.EncoderMaxLen, CheckpointInterval: cache.StateCheckpointInterval,
		Store: s.store, RebalanceEvery: s.every, MaxPages: (s.maxTokens + tpb - 1) / tpb,
		PolicyLearns: cache.EvictionPolicy == windows.Forecast,
		OnRebalance: func(m messages.Rebalanced) {
			if w.moved != nil {
				w.moved(m)
			}
		},
		OnRecovered: func(r coordinator.Recovered) {
			if w.recovered != nil {
				w.recovered(r)
			}
		},
	}
	w.Engine = direct.New(config, cores(pools, cache, &w.memory, &s))
	w.Clock = func() time.Duration { return w.now }
	return w
}

// cores makes the parts that the coordinator joins.
func cores(
	pools []windows.Pool, cache windows.Config, m *memory, s *setup,
) direct.Cores {
	var shapes []tree.PoolShape
	var c direct.Cores
	config := offloader.Config{MinPriority: messages.Priority(cache.SecondaryOffloadMinPriority),
		Quotas: cache.Quotas()}
	if s.ahead {
		config.Passed = func(messages.Ticket) bool { return true }
	}
	hosted := false
	for i, p := range pools {
		shapes = append(shapes, tree.PoolShape{Window: p.Window, Sink: p.Sink, Chunk: p.Chunk,
			State: p.Kind == windows.KindState, Cross: p.Kind == windows.KindCross})
		policy := evict.Options{Seed: 1, Span: protocol.SpanOf(tpb)}
		if p.Kind != windows.KindState {
			policy.Name = cache.EvictionPolicy
		}
		c.Pools = append(c.Pools, pool.NewWith(p.Name, s.pages[i].Primary, policy, cache.Quotas()...))
		config.Pools = append(config.Pools, offloader.PoolConfig{
			Name: p.Name, HostPages: s.pages[i].Secondary,
			PageBytes:      p.PageBytes(),
			Regions:        p.Regions(),
			TokensPerBlock: tpb, Policy: policy.Name,
		})
		hosted = hosted || s.pages[i].Secondary > 0
	}
	c.Renew = func() (*tree.Tree, *offloader.Offloader) {
		return tree.New(tree.Config{TokensPerBlock: tpb, Pools: shapes, Host: hosted,
				SavePriority: s.least}),
			offloader.New(config)
	}
	c.Tree, c.Offloader = c.Renew()
	c.Submit = m.submit
	c.Load = func(pool messages.PoolID, page messages.PageID, contents []byte) {
		copy(m.read(pool, messages.Secondary, page), contents)
	}
	return c
}

// run of n consecutive tokens.
func run(from, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(from + i)
	}
	return tokens
}

// do serves a request and checks everything.
func (w *world) do(request any) {
	w.t.Helper()
	w.Do(request)
	if !w.quiet {
		w.check()
	}
}

// picture draws pools, tree and host memory: what a refused request must leave
// as it was.
func (w *world) picture() string {
	var b strings.Builder
	counts := w.counts() // a request: what has to be told of priorities that ended is told
	apply := protocol.Apply{Now: w.now}
	w.Cores.Tree.Apply(&apply) // pools and tree hear of the time with their work only
	require.Empty(w.t, apply.Effects)
	for _, p := range w.Pools {
		p.Do(&protocol.PoolWork{Now: w.now})
		lines := strings.SplitAfter(p.String(), "\n")
		if w.cache.EvictionPolicy == windows.Forecast {
			slices.Sort(lines) // fronts of queues are looked for a little further with each message
		}
		b.WriteString(strings.Join(lines, ""))
	}
	fmt.Fprintf(&b, "%v%v%v", w.Cores.Tree, w.Cores.Offloader, counts)
	return b.String()
}

// drawn is a world that is drawn when a failure is printed, and not before.
type drawn struct{ *world }

// String draws the world.
func (d drawn) String() string { return d.picture() }

// counts are the pages by tier, of each pool, as the coordinator knows them.
func (w *world) counts() [][2]inspect.TierPages {
	var counts [][2]inspect.TierPages
	for _, p := range w.stats().Pools {
		counts = append(counts, [2]inspect.TierPages{p.Primary, p.Secondary})
	}
	return counts
}

func (w *world) stats() inspect.Stats {
	r := &inspect.ReadStats{}
	w.Do(r)
	return r.Stats
}

// check holds the cores, what they say of each other, the references of all
// tables and every byte of every page against each other.
func (w *world) check() {
	w.t.Helper()
	if w.unchecked {
		return
	}
	audit := &inspect.Check{}
	w.Do(audit)
	require.NoError(w.t, audit.Err)
	require.NoError(w.t, w.Engine.Check())
	tables := w.checkReferences()
	r := &protocol.ReadContents{}
	w.Do(r)
	claims := host.Claims{Blocks: r.Blocks}
	for id, l := range w.running {
		self := w.selfPools()
		claims.Sequences = append(claims.Sequences, host.Held{
			Name: id.String(), Computed: l.computed, Beams: l.beams, Tables: tables[id][:self],
		})
		if l.encoded {
			input := make(messages.Tables, len(w.shapes))
			copy(input[self:], tables[id][self:])
			claims.Sequences = append(claims.Sequences, host.Held{
				Name: "input of " + id.String(), Computed: len(l.input), Beams: [][]host.Chain{l.input},
				Tables: input,
			})
		}
	}
	v := host.Verifier{Layouts: w.layouts, Read: w.memory.read}
	_, problems := v.Verify(claims)
	require.Empty(w.t, problems, "\n%s", drawn{w})
	require.Equal(w.t, len(w.running), w.stats().Sequences)
}

// checkReferences compares the references of each pool with the tables of all
// sequences, which it answers.
func (w *world) checkReferences() map[messages.SequenceID]messages.Tables {
	w.t.Helper()
	tables := map[messages.SequenceID]messages.Tables{}
	for id := range w.running {
		tables[id] = w.tables(id)
	}
	for p, core := range w.Pools {
		want := make([]int32, core.Counts().Total)
		pages := make([]messages.PageID, len(want))
		for i := range pages {
			pages[i] = messages.PageID(i)
		}
		for id, t := range tables {
			beams := t[p]
			if l := w.running[id]; l.chunk > 0 && l.computed < l.prompt {
				beams = beams[:1] // the beams share one table until then
			}
			for _, beam := range beams {
				for _, page := range beam {
					if page != messages.NoPage {
						want[page]++
					}
				}
			}
		}
		work := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Inspect, Pages: pages}}}
		core.Do(&work)
		for i, share := range work.Ops[0].Shares {
			require.Equal(w.t, want[i], share.References, "pool %s page %d\n%s", core.Name(), i, core)
		}
	}
	return tables
}

func (w *world) tables(id messages.SequenceID) messages.Tables {
	w.t.Helper()
	r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
	w.Do(r)
	require.NoError(w.t, r.Results[0].Err)
	return r.Results[0].Tables
}

// memory is that of both tiers; every copy is done when it is submitted.
type memory struct {
	pools []windows.Pool
	bytes map[offloader.Slot][]byte
	seq   uint64
	// failing counts, by lane, the copies that will be refused from now on.
	failing [3]int
	copies  [3]int // done, by lane
}

func newMemory(pools []windows.Pool) memory {
	return memory{pools: pools, bytes: map[offloader.Slot][]byte{}}
}

// at is the memory of a slot; what no one has written is recognisable.
func (m *memory) at(s offloader.Slot) []byte {
	if m.bytes[s] == nil {
		m.bytes[s] = slices.Repeat([]byte{0xDD}, int(m.pools[s.Pool].PageBytes()))
	}
	return m.bytes[s]
}

func (m *memory) read(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
	return m.at(offloader.Slot{Pool: pool, Tier: tier, Page: page})
}

// submit copies, up to the first copy that is to fail: a page, which alone is
// counted, or a run with one.
func (m *memory) submit(s *offloader.Submission) (messages.Ticket, int) {
	ticket := messages.Ticket{}
	for i, c := range s.Copies {
		pages := max(1, c.Pages)
		if m.failing[s.Lane] > 0 {
			if pages == 1 {
				m.failing[s.Lane]--
			}
			return ticket, i
		}
		for n := c.Bytes / int64(pages); pages > 0; pages-- {
			if c.Zero {
				clear(m.at(c.Dst)[c.DstOffset : c.DstOffset+n])
			}
			copy(m.at(c.Dst)[c.DstOffset:c.DstOffset+n], m.at(c.Src)[c.SrcOffset:c.SrcOffset+n])
			m.copies[s.Lane]++
			c.Src.Page++
			c.Dst.Page++
		}
		m.seq++
		ticket = messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: m.seq}
	}
	return ticket, -1
}

// write puts the KV of tokens [from, to) into the pages of a sequence. With
// one beam no one else may hold a page that is written to.
func (w *world) write(l *hostSequence, from, to int) {
	w.t.Helper()
	if w.kernelsRan {
		return
	}
	tables := w.tables(l.id)
	w.encode(l, tables)
	for p := range w.selfPools() {
		if w.layouts[p].HoldsStates() {
			w.recur(l, tables[p][0][0], p, to)
			continue
		}
		for b, table := range tables[p] {
			for i := from; i < to; i++ {
				page := table[i/tpb]
				if page == messages.NoPage {
					continue
				}
				if len(l.beams) == 1 {
					w.mustOwn(p, page)
				}
				w.layouts[p].Write(w.memory.read(messages.PoolID(p), messages.Primary, page), i%tpb,
					l.beams[b][i])
			}
		}
	}
}

// recur brings the working page of a sequence to the state after so many tokens.
func (w *world) recur(l *hostSequence, working messages.PageID, p, to int) {
	w.t.Helper()
	w.mustOwn(p, working)
	page := w.memory.read(messages.PoolID(p), messages.Primary, working)
	require.NoError(w.t, w.layouts[p].VerifyState(page, host.StateAfter(l.beams[0], l.computed)))
	w.layouts[p].WriteState(page, host.StateAfter(l.beams[0], to))
}

// selfPools is the number of pools that are matched by the decoder's tokens.
func (w *world) selfPools() int {
	return slices.IndexFunc(append(slices.Clone(w.shapes), windows.Pool{Kind: windows.KindCross}),
		func(p windows.Pool) bool {
			return p.Kind == windows.KindCross
		})
}

// encode puts the keys and values of the encoder's input into the pages, as the first
// step of the decoder does. What was reused has them.
func (w *world) encode(l *hostSequence, tables messages.Tables) {
	if l.encoded || len(l.input) == 0 {
		return
	}
	l.encoded = true
	for p := w.selfPools(); p < len(tables); p++ {
		for i := l.reused; i < len(l.input); i++ {
			page := tables[p][0][i/tpb]
			w.mustOwn(p, page)
			w.layouts[p].Write(w.memory.read(messages.PoolID(p), messages.Primary, page), i%tpb, l.input[i])
		}
	}
}

// mustOwn fails unless exactly one sequence holds a page, and nothing else.
func (w *world) mustOwn(p int, page messages.PageID) {
	work := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Inspect,
		Pages: []messages.PageID{page}}}}
	w.Pools[p].Do(&work)
	share := work.Ops[0].Shares[0]
	share.Held = false // or covered by a reserve
	require.Equal(w.t, protocol.Share{References: 1}, share, "pool %d page %d is written to\n%s", p,
		page, drawn{w})
}

// assertCounts compares used, cached and free device pages of a pool.
func (w *world) assertCounts(p, used, cached, free int) {
	w.t.Helper()
	c := w.stats().Pools[p].Primary
	assert.Equal(w.t, [3]int{used, cached, free}, [3]int{c.Used, c.Cached, c.Free},
		"used, cached, free of pool %d", p)
}
