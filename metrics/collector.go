package metrics

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Source is what a collector asks of an engine. *kvactor.Engine and *actors.Engine are
// sources.
type Source interface {
	Stats(ctx context.Context) (inspect.Stats, error)
}

// Aliases are sets of further names for the same numbers.
type Aliases uint8

// The sets of names.
const (
	AliasVLLM        Aliases = 1 << iota // vllm:…
	AliasVLLMLegacy                      // vllm:gpu_cache_usage_perc, which old boards query
	AliasTensorRTLLM                     // trtllm_…
)

// Options are what a collector is made of.
type Options struct {
	Model   string // of the label model_name
	Engine  string // of the label engine; "": 0
	Aliases Aliases
	// Waiting is the number of requests that wait for the host to admit them, which
	// only the host knows; nil: 0. Those that wait for pages in the engine's own queue are
	// not among them.
	Waiting func() int
	// Preemptions is how many sequences the host has released to admit them again later. The
	// engine preempts none, so only the host knows; nil: vLLM's metric of them is absent.
	Preemptions func() int64
	// Generated is how many tokens the host has generated for its clients. The engine learns
	// of a token when it is appended, which the last one of an answer never is; nil: the
	// metrics of generated tokens are absent.
	Generated func() int64
	// Timeout is how long a scrape waits for the engine; 0: 2 s.
	Timeout time.Duration
}

// Collector is a prometheus.Collector over one engine. Its methods may be called by any
// number of goroutines.
type Collector struct {
	o     Options
	calls *calls

	mu     sync.Mutex
	source Source // nil before Attach
	pools  []windows.Pool
	cache  *windows.Config // nil before Configure

	labels prometheus.Labels // of all metrics but those of TensorRT-LLM

	// appended is what was exported last: drafts that are rejected are rewound, and a counter
	// must not fall.
	appended highest

	copies copies
	stages *stages
	times  *pageTimes
}

// highest is the largest of some numbers.
type highest struct{ atomic.Int64 }

// most adds a number and returns the largest.
func (h *highest) most(n int64) int64 {
	for {
		last := h.Load()
		if n <= last {
			return last
		}
		if h.CompareAndSwap(last, n) {
			return n
		}
	}
}

// New makes a collector. Until Attach it exports what it observes.
func New(o Options) *Collector {
	if o.Engine == "" {
		o.Engine = "0"
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Waiting == nil {
		o.Waiting = func() int { return 0 }
	}
	labels := prometheus.Labels{"model_name": o.Model, "engine": o.Engine}
	return &Collector{
		o: o, calls: newCalls(labels), copies: newCopies(labels, o.Aliases), stages: newStages(labels),
		times: newPageTimes(labels, o.Aliases), labels: labels,
	}
}

// Attach says which engine the collector asks; the pools are the engine's.
func (c *Collector) Attach(s Source, pools []windows.Pool) {
	c.times.attach(pools)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source, c.pools = s, pools
}

// Configure says what the cache is configured as, for the labels of cache_config_info of vLLM
// and kv_cache_config_info of TensorRT-LLM. Without it these labels are empty.
func (c *Collector) Configure(cache windows.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache = &cache
}

// configured reads the configuration; "" if there is none.
func (c *Collector) configured(read func(*windows.Config) string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache == nil {
		return ""
	}
	return read(c.cache)
}

// Describe describes no metric: which pools there are is known after Attach only.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks the engine for its counters and exports them. An engine that does not
// answer in time is down.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.calls.Collect(out)
	c.copies.collect(out)
	c.stages.Collect(out)
	c.times.collect(out)
	c.mu.Lock()
	source, pools := c.source, c.pools
	c.mu.Unlock()
	if source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Timeout)
	defer cancel()
	stats, err := source.Stats(ctx)
	to, up := scrape{out, "kvactor_", c.labels}, 1.0
	if err != nil {
		up = 0
	}
	to.gauge("up", up, "Whether the engine answered the scrape.")
	if err != nil {
		return
	}
	c.collectEngine(to, &stats)
	if stats.Store != nil {
		collectStore(scrape{out, "kvactor_store_", c.labels}, stats.Store)
	}
	for i := range stats.Pools {
		collectPool(to, &stats.Pools[i])
	}
	for i := range pools {
		p := &pools[i]
		to.gauge("pool_page_bytes", float64(p.PageBytes()), "Bytes of a page.", "pool", p.Name)
		to.gauge("pool_block_tokens", float64(p.TokensPerBlock), "Tokens of a block.", "pool", p.Name)
		to.gauge("pool_window_tokens", float64(p.Window),
			"Tokens of the attention window; 0 without a window.", "pool", p.Name)
		to.gauge("pool_layers", float64(len(p.Layers)),
			"Layers whose contents lie in the pages.", "pool", p.Name)
	}
	c.collectVLLM(scrape{out, "vllm:", c.labels}, &stats, pools)
	if c.o.Aliases&AliasTensorRTLLM != 0 {
		labels := prometheus.Labels{"model_name": c.o.Model, "engine_type": "kvactor"}
		c.collectTensorRTLLM(scrape{out, "trtllm_", labels}, &stats, pools)
	}
}

func (c *Collector) collectEngine(to scrape, s *inspect.Stats) {
	to.counter("requests_total", s.Requests,
		"Prompts that were admitted, noted at the admission. One that was preempted and is admitted "+
			"again counts in readmissions_total.")
	to.counter("readmissions_total", s.Readmissions,
		"Admissions of requests that were admitted before: the host had preempted them, or a failure "+
			"had lost them.")
	to.counter("prompt_tokens_total", s.PromptTokens, "Tokens of the prompts of requests_total.")
	to.counter("reused_tokens_total", s.ReusedTokens,
		"Tokens of prompt_tokens_total whose keys and values were reused at the admission.")
	to.counter("thrash_tokens_total", s.ThrashTokens,
		"Tokens of prompt_tokens_total that the cache had, evicted, and was asked for again before two "+
			"to three times what it holds had come in. Prompts with multimodal items and lost checkpoints "+
			"of states do not count.")
	collectForgets(to, s)
	to.counter("rounds_total", s.Rounds,
		"Requests that the coordinator has begun to serve, its own included.")
	to.counter("actor_restarts_total", s.Restarts, "Actors that failed and were restarted.")
	to.counter("copies_refused_total", s.Calls.RefusedCopies, "Copies that the device has refused.")
	to.counter("appended_tokens_total", c.appended.most(s.AppendedTokens),
		"Tokens appended to sequences less those rewound, of each beam. The last token of an answer is "+
			"never appended.")
	if c.o.Generated != nil {
		to.counter("generated_tokens_total", c.o.Generated(),
			"Tokens that the host has generated for its clients, those that ended an answer included.")
	}
	for code, n := range map[string]int64{
		"out_of_pages": s.RefusedSteps.OutOfPages, "sequence_lost": s.RefusedSteps.SequenceLost,
		"other": s.RefusedSteps.Other,
	} {
		to.counter("step_refusals_total", n,
			"Steps of appends, commits and releases that were refused in a call that was served, by the "+
				"code of the refusal. Each try counts.", "code", code)
	}
	collectMemory(to, &s.Memory)
	to.gauge("sequences_running", float64(s.Sequences), "Sequences that are running.")
	to.gauge("sequences_lost", float64(s.LostSequences),
		"Running sequences that a failure has lost, and that their host has not released yet.")
	to.gauge("requests_waiting", float64(c.o.Waiting()),
		"Requests that wait for the host to admit them.")
	to.gauge("admissions_waiting", float64(s.Waiting),
		"Requests for admission that wait for pages in the engine's queue.")
	to.gauge("calls_in_flight", float64(s.Calls.InFlight),
		"Calls that the engine has accepted and not answered yet.")
	to.gauge("calls_blocked", float64(s.Calls.Blocked),
		"Calls that wait to be accepted, because as many as may be are in flight.")
	host := s.Prompts.HostTokens
	for tier, n := range map[string]int64{"device": s.ReusedTokens - host, "host": host} {
		to.counter("hit_tokens_total", n,
			"Tokens of reused_tokens_total by where they were: host if a pool copied their block from "+
				"host memory, else device.", "tier", tier)
	}
	for i, reason := range inspect.MissReasons() {
		to.counter("missed_tokens_total", s.Prompts.Missed[i],
			"Tokens of prompt_tokens_total that were not reused, by why, noted at the admission.", "reason",
			string(reason))
	}
	to.tokens("request_prompt_tokens", &s.Prompts.Lengths, s.PromptTokens, nil,
		"Tokens of each prompt of requests_total.")
	to.tokens("request_reused_tokens", &s.Prompts.Reused, s.ReusedTokens, nil,
		"Reused tokens of each prompt of requests_total.")
}

// collectMemory exports what memory is for.
func collectMemory(to scrape, m *inspect.MemoryStats) {
	to.gauge("ranks", float64(m.Ranks), "Devices that the engine's device stands for.")
	for part, bytes := range map[[2]string]int64{
		{"device", "pages"}: m.DeviceBytes, {"host", "contents"}: m.ContentBytes,
		{"host", "ahead"}: m.AheadBytes, {"host", "saves"}: m.SaveBytes,
		{"host", "records"}: m.MetadataBytes,
	} {
		to.gauge("memory_bytes", float64(bytes),
			"Memory of the engine on all ranks, by device and host, and by what it is for: on the device "+
				"pages; on the host contents that were evicted, copies ahead of evictions, saves to a store, "+
				"and about what the records of pages and blocks take.", "memory", part[0], "part", part[1])
	}
}

// collectForgets exports what hosts have had the engine forget, and the epoch of the weights.
func collectForgets(to scrape, s *inspect.Stats) {
	for what, n := range map[string]int64{
		"idle": s.Forgets.Resets, "running": s.Forgets.RunningResets, "weights": s.Forgets.Weights,
		"scales": s.Forgets.Scales,
	} {
		to.counter("resets_total", n,
			"Resets, by what they forgot: idle leaves what running sequences hold, running does not, nor "+
				"do a new epoch of the weights and other scales.", "forgot", what)
	}
	to.counter("invalidations_total", s.Forgets.Invalidations,
		"Invalidations by session, salt, adapter or tokens, also those that found nothing.")
	to.counter("invalidated_blocks_total", s.Forgets.InvalidatedBlocks,
		"Blocks that invalidations have forgotten.")
	// The host may name them by the bytes of a hash, which are no label.
	weights := strings.ToValidUTF8(s.Weights, "\uFFFD")
	to.gauge("weights_info", 1, "The epoch of the weights, in a label.", "weights", weights)
}

func collectPool(to scrape, s *inspect.PoolStats) {
	for tier, n := range map[string]inspect.TierPages{"primary": s.Primary, "secondary": s.Secondary} {
		for state, n := range map[string]int{"used": n.Used, "cached": n.Cached, "free": n.Free} {
			to.gauge("pages", float64(n),
				"Pages by pool, tier and state.", "pool", s.Name, "tier", tier, "state", state)
		}
	}
	to.counter("pages_allocated_total", s.AllocatedPages,
		"Device pages taken for any purpose, also for readmissions.", "pool", s.Name)
	to.counter("pages_reused_total", s.ReusedFull,
		"Pages that prompts of requests_total reused whole.", "pool", s.Name)
	to.counter("partial_reuses_total", s.ReusedPartial,
		"Prompts of requests_total that reused a block in part.", "pool", s.Name)
	to.counter("blocks_missed_total", s.Missed,
		"Blocks of the prompts of requests_total from the first that was not reused on.", "pool", s.Name)
	to.counter("pages_evicted_total", s.Evicted,
		"Device pages whose contents were evicted, kept in host memory or not.", "pool", s.Name)
	to.counter("pages_offloaded_total", s.Offloaded,
		"Evicted pages whose contents host memory kept.", "pool", s.Name)
	to.counter("pages_dropped_total", s.Dropped,
		"Pages of either tier whose contents eviction dropped.", "pool", s.Name)
	to.counter("pages_onboarded_total", s.Onboarded,
		"Pages copied from host memory to the device.", "pool", s.Name)
	to.counter("offloaded_bytes_total", s.BytesOffloaded,
		"Bytes copied to host memory.", "pool", s.Name)
	to.counter("onboarded_bytes_total", s.BytesOnboarded,
		"Bytes copied from host memory.", "pool", s.Name)
	to.counter("offload_saved_bytes_total", s.BytesSaved,
		"Bytes not copied to host memory because they were there already.", "pool", s.Name)
	to.counter("offloads_without_copy_total", s.DirtyTakes,
		"Offloads of contents of which no onboard had left a copy in host memory. Those that were "+
			"copied ahead of the eviction count, too.", "pool", s.Name)
	to.counter("offloads_waited_for_total", s.WaitingTakes,
		"Offloads whose copy whoever took the page had to wait for.", "pool", s.Name)
	to.counter("pages_offloaded_ahead_total", s.AheadPages,
		"Pages copied to host memory before anyone asked.", "pool", s.Name)
	to.counter("checkpoints_total", s.Checkpoints,
		"Checkpoints of recurrent states that were made.", "pool", s.Name)
	to.counter("checkpoints_skipped_total", s.CheckpointsSkipped,
		"Checkpoints for which no page was found.", "pool", s.Name)
}

// collectStore exports the counters of a store.
func collectStore(to scrape, s *inspect.StoreStats) {
	to.counter("saved_objects_total", s.SavedObjects, "Objects written to the store.")
	to.counter("saved_bytes_total", s.SavedBytes, "Bytes of the objects written to the store.")
	to.counter("fetched_objects_total", s.FetchedObjects,
		"Objects read from the store that were what was asked for.")
	to.counter("fetched_bytes_total", s.FetchedBytes, "Bytes of these objects.")
	to.counter("misses_total", s.Misses, "Pages that the store was asked for and did not have.")
	to.counter("rejected_total", s.Rejected,
		"Objects read from the store that were not what was asked for.")
	to.counter("replaced_total", s.Replaced, "Objects that could not be used and were saved anew.")
	to.counter("dropped_total", s.Dropped,
		"Pages that were not saved: no room, the store failed, or with host_evict they left memory by "+
			"another way than host memory's.")
	to.counter("errors_total", s.Errors, "Calls of the store that failed.")
	to.counter("breaker_opened_total", s.BreakerOpened, "How often the breaker has opened.")
	open := 0.0
	if s.BreakerOpen {
		open = 1
	}
	to.gauge("breaker_open", open,
		"Whether the store is not asked because too many calls have failed.")
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range inspect.StoreLatencyBounds() {
		below += uint64(s.Latency[i])
		buckets[bound.Seconds()] = below
	}
	count := below + uint64(s.Latency[len(s.Latency)-1])
	to.histogram("call_duration_seconds", buckets, count, s.CallTime.Seconds(),
		"Time that calls of the store took.")
}
