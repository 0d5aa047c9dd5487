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

	own, store, vllm, trtllm descriptions

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
	c := &Collector{
		o: o, calls: newCalls(labels), copies: newCopies(labels, o.Aliases), stages: newStages(labels),
		times: newPageTimes(labels, o.Aliases),
	}
	c.own = ownDescriptions(labels)
	c.store = storeDescriptions(labels)
	if o.Aliases&(AliasVLLM|AliasVLLMLegacy) != 0 {
		c.vllm = vllmDescriptions(labels)
	}
	if o.Aliases&AliasTensorRTLLM != 0 {
		c.trtllm = trtllmDescriptions(prometheus.Labels{"model_name": o.Model, "engine_type": "kvactor"})
	}
	return c
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
	if err != nil {
		c.own.gauge(out, "up", 0)
		return
	}
	c.own.gauge(out, "up", 1)
	c.collectEngine(out, &stats)
	if stats.Store != nil {
		c.collectStore(out, stats.Store)
	}
	for i := range stats.Pools {
		c.collectPool(out, &stats.Pools[i])
	}
	for i := range pools {
		p := &pools[i]
		c.own.gauge(out, "pool_page_bytes", float64(p.PageBytes()), p.Name)
		c.own.gauge(out, "pool_block_tokens", float64(p.TokensPerBlock), p.Name)
		c.own.gauge(out, "pool_window_tokens", float64(p.Window), p.Name)
		c.own.gauge(out, "pool_layers", float64(len(p.Layers)), p.Name)
	}
	if c.vllm != nil {
		c.collectVLLM(out, &stats, pools)
	}
	if c.trtllm != nil {
		c.collectTensorRTLLM(out, &stats, pools)
	}
}

func (c *Collector) collectEngine(out chan<- prometheus.Metric, s *inspect.Stats) {
	c.own.counter(out, "requests_total", float64(s.Requests))
	c.own.counter(out, "readmissions_total", float64(s.Readmissions))
	c.own.counter(out, "prompt_tokens_total", float64(s.PromptTokens))
	c.own.counter(out, "reused_tokens_total", float64(s.ReusedTokens))
	c.own.counter(out, "thrash_tokens_total", float64(s.ThrashTokens))
	c.collectForgets(out, s)
	c.own.counter(out, "rounds_total", float64(s.Rounds))
	c.own.counter(out, "actor_restarts_total", float64(s.Restarts))
	c.own.counter(out, "copies_refused_total", float64(s.Calls.RefusedCopies))
	c.own.counter(out, "appended_tokens_total", float64(c.appended.most(s.AppendedTokens)))
	if c.o.Generated != nil {
		c.own.counter(out, "generated_tokens_total", float64(c.o.Generated()))
	}
	for code, n := range map[string]int64{
		"out_of_pages": s.RefusedSteps.OutOfPages, "sequence_lost": s.RefusedSteps.SequenceLost,
		"other": s.RefusedSteps.Other,
	} {
		c.own.counter(out, "step_refusals_total", float64(n), code)
	}
	c.collectMemory(out, &s.Memory)
	c.own.gauge(out, "sequences_running", float64(s.Sequences))
	c.own.gauge(out, "sequences_lost", float64(s.LostSequences))
	c.own.gauge(out, "requests_waiting", float64(c.o.Waiting()))
	c.own.gauge(out, "admissions_waiting", float64(s.Waiting))
	c.own.gauge(out, "calls_in_flight", float64(s.Calls.InFlight))
	c.own.gauge(out, "calls_blocked", float64(s.Calls.Blocked))
	c.own.counter(out, "hit_tokens_total", float64(s.ReusedTokens-s.Prompts.HostTokens), "device")
	c.own.counter(out, "hit_tokens_total", float64(s.Prompts.HostTokens), "host")
	for i, reason := range inspect.MissReasons() {
		c.own.counter(out, "missed_tokens_total", float64(s.Prompts.Missed[i]), string(reason))
	}
	c.own.histogram(out, "request_prompt_tokens", &s.Prompts.Lengths, s.PromptTokens, nil)
	c.own.histogram(out, "request_reused_tokens", &s.Prompts.Reused, s.ReusedTokens, nil)
}

// collectMemory exports what memory is for.
func (c *Collector) collectMemory(out chan<- prometheus.Metric, m *inspect.MemoryStats) {
	c.own.gauge(out, "ranks", float64(m.Ranks))
	c.own.gauge(out, "memory_bytes", float64(m.DeviceBytes), "device", "pages")
	c.own.gauge(out, "memory_bytes", float64(m.ContentBytes), "host", "contents")
	c.own.gauge(out, "memory_bytes", float64(m.AheadBytes), "host", "ahead")
	c.own.gauge(out, "memory_bytes", float64(m.SaveBytes), "host", "saves")
	c.own.gauge(out, "memory_bytes", float64(m.MetadataBytes), "host", "records")
}

// collectForgets exports what hosts have had the engine forget, and the epoch of the weights.
func (c *Collector) collectForgets(out chan<- prometheus.Metric, s *inspect.Stats) {
	c.own.counter(out, "resets_total", float64(s.Forgets.Resets), "idle")
	c.own.counter(out, "resets_total", float64(s.Forgets.RunningResets), "running")
	c.own.counter(out, "resets_total", float64(s.Forgets.Weights), "weights")
	c.own.counter(out, "resets_total", float64(s.Forgets.Scales), "scales")
	c.own.counter(out, "invalidations_total", float64(s.Forgets.Invalidations))
	c.own.counter(out, "invalidated_blocks_total", float64(s.Forgets.InvalidatedBlocks))
	// The host may name them by the bytes of a hash, which are no label.
	c.own.gauge(out, "weights_info", 1, strings.ToValidUTF8(s.Weights, "\uFFFD"))
}

func (c *Collector) collectPool(out chan<- prometheus.Metric, s *inspect.PoolStats) {
	for _, tier := range []struct {
		name string
		n    inspect.TierPages
	}{{"primary", s.Primary}, {"secondary", s.Secondary}} {
		c.own.gauge(out, "pages", float64(tier.n.Used), s.Name, tier.name, "used")
		c.own.gauge(out, "pages", float64(tier.n.Cached), s.Name, tier.name, "cached")
		c.own.gauge(out, "pages", float64(tier.n.Free), s.Name, tier.name, "free")
	}
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"pages_allocated_total", s.AllocatedPages},
		{"pages_reused_total", s.ReusedFull},
		{"partial_reuses_total", s.ReusedPartial},
		{"blocks_missed_total", s.Missed},
		{"pages_evicted_total", s.Evicted},
		{"pages_offloaded_total", s.Offloaded},
		{"pages_dropped_total", s.Dropped},
		{"pages_onboarded_total", s.Onboarded},
		{"offloaded_bytes_total", s.BytesOffloaded},
		{"onboarded_bytes_total", s.BytesOnboarded},
		{"offload_saved_bytes_total", s.BytesSaved},
		{"offloads_without_copy_total", s.DirtyTakes},
		{"offloads_waited_for_total", s.WaitingTakes},
		{"pages_offloaded_ahead_total", s.AheadPages},
		{"checkpoints_total", s.Checkpoints},
		{"checkpoints_skipped_total", s.CheckpointsSkipped},
	} {
		c.own.counter(out, x.name, float64(x.n), s.Name)
	}
}

// storeDescriptions are the metrics of an engine's store. Engines without one export none.
func storeDescriptions(constant prometheus.Labels) descriptions {
	return describe("kvactor_store_", constant, nil, [][2]string{
		{"saved_objects_total", "Objects written to the store."},
		{"saved_bytes_total", "Bytes of the objects written to the store."},
		{"fetched_objects_total", "Objects read from the store that were what was asked for."},
		{"fetched_bytes_total", "Bytes of these objects."},
		{"misses_total", "Pages that the store was asked for and did not have."},
		{"rejected_total", "Objects read from the store that were not what was asked for."},
		{"replaced_total", "Objects that could not be used and were saved anew."},
		{"dropped_total",
			"Pages that were not saved: no room, the store failed, or with host_evict they left memory by another way than host memory's."},
		{"errors_total", "Calls of the store that failed."},
		{"breaker_open", "Whether the store is not asked because too many calls have failed."},
		{"breaker_opened_total", "How often the breaker has opened."},
		{"call_duration_seconds", "Time that calls of the store took."},
	})
}

// collectStore exports the counters of a store.
func (c *Collector) collectStore(out chan<- prometheus.Metric, s *inspect.StoreStats) {
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"saved_objects_total", s.SavedObjects},
		{"saved_bytes_total", s.SavedBytes},
		{"fetched_objects_total", s.FetchedObjects},
		{"fetched_bytes_total", s.FetchedBytes},
		{"misses_total", s.Misses},
		{"rejected_total", s.Rejected},
		{"replaced_total", s.Replaced},
		{"dropped_total", s.Dropped},
		{"errors_total", s.Errors},
		{"breaker_opened_total", s.BreakerOpened},
	} {
		c.store.counter(out, x.name, float64(x.n))
	}
	open := 0.0
	if s.BreakerOpen {
		open = 1
	}
	c.store.gauge(out, "breaker_open", open)
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range inspect.StoreLatencyBounds() {
		below += uint64(s.Latency[i])
		buckets[bound.Seconds()] = below
	}
	count := below + uint64(s.Latency[len(s.Latency)-1])
	out <- prometheus.MustNewConstHistogram(c.store["call_duration_seconds"], count,
		s.CallTime.Seconds(), buckets)
}
