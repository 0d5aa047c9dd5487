package plan

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// Request is what a plan is made of.
type Request struct {
	Name  string // of the model, for the reader
	Model hfconfig.Model
	// Cache is the configuration; the model's windows are used unless it has its
	// own.
	Cache windows.Config
	// DeviceBytes is the device memory that is free when the cache is made, of
	// which the configuration takes free_gpu_memory_fraction.
	DeviceBytes int64
	// Sequences and SeqLen ask what so many sequences of this length need; 0: one,
	// of the expected length.
	Sequences, SeqLen int
	// Link is the device whose link host memory is behind.
	Link sim.Profile
	// Parameters are those that one token uses, for the time to compute a prefix;
	// 0: unknown.
	Parameters float64
	// Devices share the computation of a prefix, as they share the layers; 0: one. Each takes
	// the memory of the plan.
	Devices int
	// HostFree is the host memory that is free for all devices; 0: not known.
	HostFree int64
}

// Plan is the answer. Sizes are in bytes.
type Plan struct {
	Model         string   `json:"model"`
	Type          string   `json:"model_type,omitempty"`
	Layers        int      `json:"layers"`
	MaxSeqLen     int      `json:"max_seq_len"`
	ExpectedLen   int      `json:"expected_seq_len"`
	Division      string   `json:"division"` // what memory is divided for
	BlockTokens   int      `json:"tokens_per_block"`
	Pools         []Pool   `json:"pools"`
	Resources     []Kept   `json:"resources,omitempty"` // of Request.Declare
	DeviceFree    int64    `json:"device_free_bytes"`
	Device        int64    `json:"device_bytes"` // that pages take
	Host          int64    `json:"host_bytes"`   // that pages take
	HostUse       HostUse  `json:"host"`
	Metadata      int64    `json:"metadata_bytes"` // about what the engine keeps beside pages
	Ranks         Ranks    `json:"ranks"`
	Fits          []Fit    `json:"fits"`
	LongestAlone  int      `json:"longest_sequence"`         // that fits alone
	LongestPrompt int      `json:"longest_unchunked_prompt"` // that can be admitted without chunks
	Need          Need     `json:"need"`
	Offload       Offload  `json:"offload"`
	Warnings      []string `json:"warnings,omitempty"`
	Notes         []string `json:"notes,omitempty"`
}

// HostUse is what the host memory of one rank is for.
type HostUse struct {
	Contents int64 `json:"content_bytes"` // the host pages of the pools
	Ahead    int64 `json:"ahead_bytes"`   // copies that are made before a page is evicted
	// Save is what a store takes of both at most.
	Save int64 `json:"save_bytes"`
}

// Ranks is what all devices take together.
type Ranks struct {
	Devices int   `json:"devices"`
	Device  int64 `json:"device_bytes"`
	Host    int64 `json:"host_bytes"`
}

// Pool is one pool with its share of the memory.
type Pool struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Layers     int     `json:"layers"`
	KVHeads    int     `json:"kv_heads,omitempty"`
	HeadDim    int     `json:"head_dim,omitempty"`
	ValueDim   int     `json:"value_dim,omitempty"`
	DType      string  `json:"dtype,omitempty"`
	Window     int     `json:"window,omitempty"`
	Chunk      int     `json:"chunk,omitempty"`
	PageBytes  int64   `json:"page_bytes"`
	TokenBytes int64   `json:"token_bytes,omitempty"` // 0 for states
	Primary    int     `json:"primary_pages"`
	Secondary  int     `json:"secondary_pages"`
	Share      float64 `json:"share"` // of the device memory of all pools
}

// Fit is how many sequences of a length fit on the device at a time.
type Fit struct {
	Tokens    int    `json:"tokens"`
	Sequences int    `json:"sequences"`
	Limit     string `json:"limited_by"`
	Bytes     int64  `json:"sequence_bytes"`
}

// Need is what a number of sequences of a length take.
type Need struct {
	Sequences int   `json:"sequences"`
	Tokens    int   `json:"tokens"`
	Bytes     int64 `json:"bytes"`
}

// Offload compares bringing a prefix back from host memory with computing it.
type Offload struct {
	Link string `json:"link"`
	Rows []Back `json:"prefixes"`
	// BreakEven is the shortest prefix, in whole blocks, that is brought back
	// sooner than computed; 0: none up to the longest sequence, or not known.
	BreakEven  int     `json:"break_even_tokens,omitempty"`
	Parameters float64 `json:"parameters,omitempty"`
}

// Back is the return of one prefix from host memory.
type Back struct {
	Tokens int   `json:"tokens"`
	Bytes  int64 `json:"bytes"`
	Nanos  int64 `json:"onboard_ns"`
	// Rate is the speed of prefill, in tokens a second, below which bringing the
	// prefix back is faster.
	Rate    float64 `json:"break_even_tokens_per_second"`
	Compute int64   `json:"compute_ns,omitempty"` // estimated; 0: not known
}

// planner holds what the parts of a plan are computed from.
type planner struct {
	Request
	pools  []windows.Pool
	counts []windows.PageCounts
	host   []windows.HostPages
	plan   Plan
}

// Make computes a plan. It is refused if the configuration is invalid or the
// memory holds no page of some pool.
func Make(r Request) (*Plan, error) {
	set := r.Model.Configure(r.Cache)
	r.Cache = set.ForMixedLengths(r.Model.Model)
	p := planner{Request: r}
	if err := p.split(); err != nil {
		return nil, err
	}
	m := r.Model.Model
	p.plan = Plan{
		Model: r.Name, Type: r.Model.Type, Layers: m.Layers, MaxSeqLen: m.MaxSeqLen,
		ExpectedLen: m.MaxSeqLen,
		BlockTokens: r.Cache.TokensPerBlock, DeviceFree: r.DeviceBytes,
		Notes: slices.Clone(r.Model.Notes),
	}
	if n := r.Cache.ExpectedSeqLen; n > 0 {
		p.plan.ExpectedLen = n
	}
	switch {
	case set.PoolFractions != nil:
		p.plan.Division = "by pool_fractions"
	case r.Cache.PoolFractions != nil:
		p.plan.Division = fmt.Sprintf("for sequences of %s and of %s tokens",
			report.Count(windows.ShortSequence), report.Count(m.MaxSeqLen))
	default:
		p.plan.Division = fmt.Sprintf("for sequences of %s tokens", report.Count(p.plan.ExpectedLen))
	}
	p.describe()
	p.fits()
	if err := p.needs(); err != nil {
		return nil, err
	}
	p.offload()
	p.explain()
	p.plan.Warnings = windows.Warnings(p.self(), m, r.Cache, p.counts)
	p.turns()
	return &p.plan, nil
}

// turns notes how many tokens clients that take turns may come back with.
func (p *planner) turns() {
	if p.Cache.EvictionPolicy != windows.PriorityLRU || !p.Cache.EnableBlockReuse {
		return
	}
	kept := -1
	for i, pool := range p.self() {
		if pool.Kind == windows.KindAttention && pool.Full() {
			if n := (p.counts[i].Primary + p.counts[i].Secondary) * pool.TokensPerBlock; kept < 0 ||
				n < kept {
				kept = n
			}
		}
	}
	if kept >= 0 {
		p.plan.Notes = append(p.plan.Notes,
			fmt.Sprintf("clients that take turns with more than %s tokens in all reuse little under "+
				"eviction_policy priority_lru: kvactor_thrash_tokens_total counts what they lose, and "+
				"forecast or more memory helps", report.Count(kept)))
	}
}

// split computes the pools and their pages; a cross pool comes last.
func (p *planner) split() error {
	m, c := p.Model.Model, p.Cache
	pools, err := windows.Pools(m, c)
	if err != nil {
		return err
	}
	if n := int64(max(1, p.Devices)); p.HostFree > 0 && c.HostCacheSize > p.HostFree/n {
		return fmt.Errorf(
			"host_cache_size %s on each of %s is more than the %s of host memory that are free",
			report.Bytes(c.HostCacheSize), plural(int(n), "device"), report.Bytes(p.HostFree))
	}
	budget := windows.Budget{DeviceBytes: p.DeviceBytes}
	p.counts, err = windows.Split(pools, m, c, budget)
	if err != nil {
		return err
	}
	p.pools = pools
	if cross, ok := windows.CrossPool(m, c); ok {
		n, err := windows.SplitCross(m, c, budget)
		if err != nil {
			return err
		}
		p.pools, p.counts = append(p.pools, cross), append(p.counts, n)
	}
	for i, n := range p.counts {
		p.host = append(p.host, windows.DivideHost(n, c.OffloadAhead && c.OnboardBlocks, 0))
		p.counts[i].Secondary = p.host[i].Contents
	}
	return nil
}

// self are the pools without the cross pool.
func (p *planner) self() []windows.Pool {
	if n := len(p.pools); p.pools[n-1].Kind == windows.KindCross {
		return p.pools[:n-1]
	}
	return p.pools
}

func (p *planner) describe() {
	for i, pool := range p.pools {
		p.plan.Device += int64(p.counts[i].Primary) * pool.PageBytes()
		save := windows.DivideHost(windows.PageCounts{Primary: p.counts[i].Primary,
			Secondary: p.host[i].Total()}, false, windows.MaxPages).Save
		p.plan.Host += int64(p.host[i].Total()) * pool.PageBytes()
		p.plan.HostUse.Contents += int64(p.host[i].Contents) * pool.PageBytes()
		p.plan.HostUse.Ahead += int64(p.host[i].Ahead) * pool.PageBytes()
		p.plan.HostUse.Save += int64(save) * pool.PageBytes()
	}
	n := max(1, p.Devices)
	p.plan.Metadata = windows.MetadataBytes(p.counts, p.Cache.TokensPerBlock)
	p.plan.Ranks = Ranks{Devices: n, Device: int64(n) * p.plan.Device, Host: int64(n) * p.plan.Host}
	for i, pool := range p.pools {
		p.plan.Pools = append(p.plan.Pools, Pool{
			Name: pool.Name, Kind: pool.Kind.String(), Layers: len(pool.Layers), KVHeads: pool.KVHeads,
			HeadDim: pool.HeadDim, ValueDim: pool.ValueDim,
			DType: string(pool.DType), Window: pool.Window, Chunk: pool.Chunk, PageBytes: pool.PageBytes(),
			TokenBytes: pool.TokenBytes(),
			Primary:    p.counts[i].Primary, Secondary: p.counts[i].Secondary,
			Share: float64(p.counts[i].Primary) * float64(pool.PageBytes()) / float64(p.plan.Device),
		})
	}
}

// need is how many pages of a pool a sequence takes. In a cross pool that does
// not depend on its length: it takes those of the longest encoder input.
func (p *planner) need(pool windows.Pool, tokens int) int {
	if pool.Kind == windows.KindCross {
		tokens = p.Model.EncoderMaxLen
	}
	return pool.Need(tokens)
}

// sequenceBytes is what a sequence of so many tokens takes.
func (p *planner) sequenceBytes(tokens int) int64 {
	bytes := int64(0)
	for _, pool := range p.pools {
		bytes += int64(p.need(pool, tokens)) * pool.PageBytes()
	}
	return bytes
}

// fit counts the sequences of a length that fit.
func (p *planner) fit(tokens int) Fit {
	f := windows.FitOf(p.self(), p.counts, tokens)
	out := Fit{Tokens: tokens, Sequences: f.Sequences, Limit: f.Pool, Bytes: p.sequenceBytes(tokens)}
	if last := len(p.pools) - 1; last >= len(p.self()) {
		if n := p.counts[last].Primary / p.need(p.pools[last], tokens); n < out.Sequences {
			out.Sequences, out.Limit = n, p.pools[last].Name
		}
	}
	return out
}

// lengths are those of the table: 1 Ki tokens and each four times as many, the
// expected length, the longest.
func (p *planner) lengths() []int {
	longest := p.Model.MaxSeqLen
	list := []int{longest, p.plan.ExpectedLen}
	for n := 1024; n < longest; n *= 4 {
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (p *planner) fits() {
	for _, n := range p.lengths() {
		p.plan.Fits = append(p.plan.Fits, p.fit(n))
	}
	// More tokens never need fewer pages, so the lengths that fit are the first.
	p.plan.LongestAlone = sort.Search(p.Model.MaxSeqLen,
		func(n int) bool { return p.fit(n+1).Sequences == 0 })
	p.plan.LongestPrompt = p.Model.MaxSeqLen
	if prompt := windows.LongestPrompt(p.self(), p.counts); prompt.Pool != "" {
		p.plan.LongestPrompt = min(p.Model.MaxSeqLen, prompt.Tokens)
	}
}

// needs computes what the number of sequences takes that was asked for.
func (p *planner) needs() error {
	n := Need{Sequences: max(1, p.Sequences), Tokens: p.SeqLen}
	if n.Tokens == 0 {
		n.Tokens = p.plan.ExpectedLen
	}
	one := p.sequenceBytes(n.Tokens)
	if int64(n.Sequences) > math.MaxInt64/one {
		return fmt.Errorf("%s sequences of %s tokens take more than 8 EiB", report.Count(n.Sequences),
			report.Count(n.Tokens))
	}
	n.Bytes = int64(n.Sequences) * one
	p.plan.Need = n
	return nil
}

// explain adds notes on what the numbers of some pools contain.
func (p *planner) explain() {
	m := p.Model.Model
	if len(m.States) > 0 {
		p.plan.Notes = append(p.plan.Notes,
			"the elements of states have the type of mamba_ssm_cache_dtype, else that of the file or of "+
				"its model type; many servers keep float32")
		if p.Cache.EnableBlockReuse {
			p.plan.Notes = append(p.plan.Notes,
				"a running sequence takes two states: the one it works on and a checkpoint")
		}
	}
	side := m.SideBytes
	for _, s := range m.Shapes {
		side = max(side, s.SideBytes)
	}
	if side > 0 {
		p.plan.Notes = append(p.plan.Notes,
			fmt.Sprintf(
				"each token of a layer has %d bytes beside its keys and values, such as an indexer's keys",
				side))
	}
}

// efficiency is the part of a device's datasheet rate that prefill reaches.
const efficiency = 0.5

// offload compares, for each length, the link with computing.
func (p *planner) offload() {
	p.plan.Offload = Offload{Link: p.Link.Name, Parameters: p.Parameters}
	for _, n := range p.lengths() {
		p.plan.Offload.Rows = append(p.plan.Offload.Rows, p.back(n))
	}
	if p.Parameters == 0 {
		return
	}
	tpb := p.Cache.TokensPerBlock
	blocks := p.Model.MaxSeqLen / tpb
	// The advantage of the link grows with the length: its fixed costs count less,
	// and windows cap what is brought back.
	at := sort.Search(blocks,
		func(i int) bool { b := p.back((i + 1) * tpb); return b.Nanos < b.Compute })
	if at < blocks {
		p.plan.Offload.BreakEven = (at + 1) * tpb
	}
}

// back is the return of a prefix: the pages that the token behind it needs, in
// one batch for each pool, and the checkpoint of its states.
func (p *planner) back(tokens int) Back {
	b := Back{Tokens: tokens}
	for _, pool := range p.self() {
		pages := min(pool.Need(tokens), (tokens+pool.TokensPerBlock-1)/pool.TokensPerBlock)
		if pool.Kind == windows.KindState {
			pages = 1
		}
		b.Bytes += int64(pages) * pool.PageBytes()
		b.Nanos += p.Link.Duration(sim.Transfer{Direction: gpu.Onboard, Copies: pages,
			Bytes: pool.PageBytes()}).Nanoseconds()
	}
	b.Rate = float64(tokens) / (float64(b.Nanos) / 1e9)
	if p.Parameters > 0 && p.Link.DenseTFLOPS > 0 {
		rate := p.Link.DenseTFLOPS * 1e12 * efficiency * float64(max(1, p.Devices))
		b.Compute = int64(min(2*p.Parameters*float64(tokens)/rate*1e9, math.MaxInt64/2))
	}
	return b
}

// String names a plan in errors.
func (p *Plan) String() string { return fmt.Sprintf("plan of %s", p.Model) }
