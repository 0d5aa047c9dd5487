package metrics

import (
	"strconv"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// sumOf adds the counters of pools that the aliases have: of all, or of those that a function
// chooses.
func sumOf(s *inspect.Stats, chosen func(pool int) bool) (all inspect.PoolCounters) {
	for i := range s.Pools {
		if chosen != nil && !chosen(i) {
			continue
		}
		n := &s.Pools[i].PoolCounters
		all.ReusedFull += n.ReusedFull
		all.ReusedPartial += n.ReusedPartial
		all.Missed += n.Missed
		all.BytesOnboarded += n.BytesOnboarded
		all.BytesOffloaded += n.BytesOffloaded
	}
	return all
}

// hostShare is the share of host pages that are in use or cache something, of all pools.
func hostShare(s *inspect.Stats) float64 {
	var all inspect.TierPages
	for i := range s.Pools {
		n := s.Pools[i].Secondary
		all.Total, all.Used = all.Total+n.Total, all.Used+n.Used+n.Cached
	}
	return share(all)
}

// collectTensorRTLLM exports those metrics of TensorRT-LLM 1.3 of which an engine knows the truth.
// docs/observability.md says of all others why they are absent. What has iter in its name
// counts from the start there, too.
func (c *Collector) collectTensorRTLLM(to scrape, s *inspect.Stats, pools []windows.Pool) {
	p, usage := fullest(s)
	if p == nil {
		return
	}
	to.gauge("kv_cache_utilization", usage, "Share of the device pages in use, of the fullest pool.")
	to.gauge("kv_cache_host_utilization", hostShare(s),
		"Share of the host pages in use or cached, of all pools.")
	to.gauge("kv_cache_max_blocks", float64(p.Primary.Total), "Device pages of the fullest pool.")
	to.gauge("kv_cache_free_blocks", float64(p.Primary.Total-p.Primary.Used),
		"Device pages of the fullest pool that are not in use.")
	to.gauge("kv_cache_used_blocks", float64(p.Primary.Used),
		"Device pages of the fullest pool in use.")
	to.gauge("kv_cache_tokens_per_block", float64(blockTokens(pools)), "Tokens of a block.")
	to.gauge("num_requests_running", float64(s.Sequences), "Sequences that are running.")
	to.gauge("num_requests_waiting", float64(c.waiting(s)),
		"Requests that wait for the host to admit them, and those that wait for pages.")
	trtllmBlocks(to, s, pools)
	c.trtllmPrompts(to, s)
	if len(pools) > 0 {
		to.gauge("kv_cache_config_info", 1,
			"The cache, in labels.", "page_size", strconv.Itoa(blockTokens(pools)),
			"enable_block_reuse",
			c.configured(func(cache *windows.Config) string { return title(cache.EnableBlockReuse) }),
			"enable_partial_reuse",
			c.configured(func(cache *windows.Config) string { return title(cache.EnablePartialReuse) }),
			"free_gpu_memory_fraction",
			c.configured(func(cache *windows.Config) string {
				return strconv.FormatFloat(cache.FreeGPUMemoryFraction, 'g', -1, 64)
			}),
			"cache_dtype", string(pools[0].DType))
	}
}

// trtllmBlocks exports what became of blocks. A pool of recurrent states has checkpoints, which
// TensorRT-LLM does not count as blocks.
func trtllmBlocks(to scrape, s *inspect.Stats, pools []windows.Pool) {
	all := sumOf(s, nil)
	blocks := sumOf(s, func(pool int) bool {
		return pool >= len(pools) || pools[pool].Kind != windows.KindState
	})
	reused := blocks.ReusedFull + blocks.ReusedPartial
	rate := 0.0
	if n := reused + blocks.Missed; n > 0 {
		rate = float64(reused) / float64(n)
	}
	to.gauge("kv_cache_hit_rate", rate,
		"Reused blocks as a share of reused and missed ones, since the start.")
	to.counter("kv_cache_reused_blocks_total", reused, "Blocks reused, of all pools of attention.")
	to.counter("kv_cache_missed_blocks_total", blocks.Missed,
		"Prompt blocks not reused, of all pools of attention.")
	to.counter("kv_cache_iter_reused_blocks_total", reused,
		"Blocks reused, whole or in part, of all pools of attention.")
	to.counter("kv_cache_iter_full_reused_blocks_total", blocks.ReusedFull,
		"Blocks reused whole, of all pools of attention.")
	to.counter("kv_cache_iter_partial_reused_blocks_total", blocks.ReusedPartial,
		"Blocks reused in part, of all pools of attention.")
	to.counter("kv_cache_iter_missed_blocks_total", blocks.Missed,
		"Prompt blocks not reused, of all pools of attention.")
	to.counter("kv_cache_gen_alloc_blocks_total", s.AppendedPages,
		"Device pages that appends took, of all pools.")
	to.counter("kv_cache_onboard_bytes_total", all.BytesOnboarded, "Bytes copied from host memory.")
	to.counter("kv_cache_offload_bytes_total", all.BytesOffloaded, "Bytes copied to host memory.")
	if s.Store != nil {
		to.counter("kv_cache_disk_prefetch_blocks_total", s.Store.FetchedObjects,
			"Pages that came from the store to host memory.")
	}
}

// trtllmPrompts exports what TensorRT-LLM counts of prompts. Its buckets are powers of two.
func (c *Collector) trtllmPrompts(to scrape, s *inspect.Stats) {
	to.counter("prompt_tokens_total", s.PromptTokens,
		"Tokens of the prompts that were admitted, once for each request, however often it was "+
			"preempted.")
	to.counter("prompt_cached_tokens_total", s.ReusedTokens,
		"Tokens of prompt_tokens_total that were reused when the request was first admitted.")
	if c.o.Generated != nil {
		to.counter("generation_tokens_total", c.o.Generated(),
			"Tokens that the host has generated for its clients.")
	}
	host := s.Prompts.HostTokens
	for tier, n := range map[[2]string]int64{{"0", "gpu"}: s.ReusedTokens - host,
		{"1", "host"}: host} {
		to.counter("prompt_cache_hit_tokens_total", n,
			"Prompt tokens reused, by the tier that had them.", "cache_level", tier[0], "cache_tier",
			tier[1])
	}
	powers := func(bound int) bool { return bound == 0 || bound >= 64 && bound <= 8192 }
	to.tokens("prompt_cached_tokens_per_request", &s.Prompts.Reused, s.ReusedTokens, powers,
		"Reused tokens of each prompt, noted when it is first admitted.")
}
