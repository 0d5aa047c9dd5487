package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// trtllmDescriptions are those metrics of TensorRT-LLM 1.3 of which an engine knows the truth.
// docs/observability.md says of all others why they are absent. What has iter in its name
// counts from the start there, too.
func trtllmDescriptions(constant prometheus.Labels) descriptions {
	d := describe("trtllm_", constant, nil, [][2]string{
		{"kv_cache_hit_rate", "Reused blocks as a share of reused and missed ones, since the start."},
		{"kv_cache_utilization", "Share of the device pages in use, of the fullest pool."},
		{"kv_cache_host_utilization", "Share of the host pages in use or cached, of all pools."},
		{"kv_cache_max_blocks", "Device pages of the fullest pool."},
		{"kv_cache_free_blocks", "Device pages of the fullest pool that are not in use."},
		{"kv_cache_used_blocks", "Device pages of the fullest pool in use."},
		{"kv_cache_tokens_per_block", "Tokens of a block."},
		{"kv_cache_reused_blocks_total", "Blocks reused, of all pools of attention."},
		{"kv_cache_missed_blocks_total", "Prompt blocks not reused, of all pools of attention."},
		{"kv_cache_iter_reused_blocks_total",
			"Blocks reused, whole or in part, of all pools of attention."},
		{"kv_cache_iter_full_reused_blocks_total", "Blocks reused whole, of all pools of attention."},
		{"kv_cache_iter_partial_reused_blocks_total",
			"Blocks reused in part, of all pools of attention."},
		{"kv_cache_iter_missed_blocks_total", "Prompt blocks not reused, of all pools of attention."},
		{"kv_cache_gen_alloc_blocks_total", "Device pages that appends took, of all pools."},
		{"kv_cache_onboard_bytes_total", "Bytes copied from host memory."},
		{"kv_cache_offload_bytes_total", "Bytes copied to host memory."},
		{"kv_cache_disk_prefetch_blocks_total", "Pages that came from the store to host memory."},
		{"prompt_tokens_total",
			"Tokens of the prompts that were admitted, once for each request, however often it was preempted."},
		{"prompt_cached_tokens_total",
			"Tokens of prompt_tokens_total that were reused when the request was first admitted."},
		{"generation_tokens_total", "Tokens that the host has generated for its clients."},
		{"prompt_cached_tokens_per_request",
			"Reused tokens of each prompt, noted when it is first admitted."},
		{"num_requests_running", "Sequences that are running."},
		{"num_requests_waiting",
			"Requests that wait for the host to admit them, and those that wait for pages."},
	})
	d["prompt_cache_hit_tokens_total"] = prometheus.NewDesc("trtllm_prompt_cache_hit_tokens_total",
		"Prompt tokens reused, by the tier that had them.",
		[]string{"cache_level", "cache_tier"}, constant)
	d["kv_cache_config_info"] = prometheus.NewDesc("trtllm_kv_cache_config_info",
		"The cache, in labels.",
		[]string{"page_size", "enable_block_reuse", "enable_partial_reuse", "free_gpu_memory_fraction",
			"cache_dtype"}, constant)
	return d
}

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

func (c *Collector) collectTensorRTLLM(
	out chan<- prometheus.Metric, s *inspect.Stats, pools []windows.Pool,
) {
	p, usage := fullest(s)
	if p == nil {
		return
	}
	c.trtllm.gauge(out, "kv_cache_utilization", usage)
	c.trtllm.gauge(out, "kv_cache_host_utilization", hostShare(s))
	c.trtllm.gauge(out, "kv_cache_max_blocks", float64(p.Primary.Total))
	c.trtllm.gauge(out, "kv_cache_free_blocks", float64(p.Primary.Total-p.Primary.Used))
	c.trtllm.gauge(out, "kv_cache_used_blocks", float64(p.Primary.Used))
	c.trtllm.gauge(out, "kv_cache_tokens_per_block", float64(blockTokens(pools)))
	c.trtllm.gauge(out, "num_requests_running", float64(s.Sequences))
	c.trtllm.gauge(out, "num_requests_waiting", float64(c.waiting(s)))
	c.trtllmBlocks(out, s, pools)
	c.trtllmPrompts(out, s)
	if len(pools) > 0 {
		c.trtllm.gauge(out, "kv_cache_config_info", 1, strconv.Itoa(blockTokens(pools)),
			c.configured(func(cache *windows.Config) string { return title(cache.EnableBlockReuse) }),
			c.configured(func(cache *windows.Config) string { return title(cache.EnablePartialReuse) }),
			c.configured(func(cache *windows.Config) string {
				return strconv.FormatFloat(cache.FreeGPUMemoryFraction, 'g', -1, 64)
			}),
			string(pools[0].DType))
	}
}

// trtllmBlocks exports what became of blocks. A pool of recurrent states has checkpoints, which
// TensorRT-LLM does not count as blocks.
func (c *Collector) trtllmBlocks(
	out chan<- prometheus.Metric, s *inspect.Stats, pools []windows.Pool,
) {
	all := sumOf(s, nil)
	blocks := sumOf(s, func(pool int) bool {
		return pool >= len(pools) || pools[pool].Kind != windows.KindState
	})
	reused := float64(blocks.ReusedFull + blocks.ReusedPartial)
	rate := 0.0
	if n := reused + float64(blocks.Missed); n > 0 {
		rate = reused / n
	}
	c.trtllm.gauge(out, "kv_cache_hit_rate", rate)
	c.trtllm.counter(out, "kv_cache_reused_blocks_total", reused)
	c.trtllm.counter(out, "kv_cache_missed_blocks_total", float64(blocks.Missed))
	c.trtllm.counter(out, "kv_cache_iter_reused_blocks_total", reused)
	c.trtllm.counter(out, "kv_cache_iter_full_reused_blocks_total", float64(blocks.ReusedFull))
	c.trtllm.counter(out, "kv_cache_iter_partial_reused_blocks_total", float64(blocks.ReusedPartial))
	c.trtllm.counter(out, "kv_cache_iter_missed_blocks_total", float64(blocks.Missed))
	c.trtllm.counter(out, "kv_cache_gen_alloc_blocks_total", float64(s.AppendedPages))
	c.trtllm.counter(out, "kv_cache_onboard_bytes_total", float64(all.BytesOnboarded))
	c.trtllm.counter(out, "kv_cache_offload_bytes_total", float64(all.BytesOffloaded))
	if s.Store != nil {
		c.trtllm.counter(out, "kv_cache_disk_prefetch_blocks_total", float64(s.Store.FetchedObjects))
	}
}

// trtllmPrompts exports what TensorRT-LLM counts of prompts. Its buckets are powers of two.
func (c *Collector) trtllmPrompts(out chan<- prometheus.Metric, s *inspect.Stats) {
	c.trtllm.counter(out, "prompt_tokens_total", float64(s.PromptTokens))
	c.trtllm.counter(out, "prompt_cached_tokens_total", float64(s.ReusedTokens))
	if c.o.Generated != nil {
		c.trtllm.counter(out, "generation_tokens_total", float64(c.o.Generated()))
	}
	c.trtllm.counter(out, "prompt_cache_hit_tokens_total",
		float64(s.ReusedTokens-s.Prompts.HostTokens), "0", "gpu")
	c.trtllm.counter(out, "prompt_cache_hit_tokens_total", float64(s.Prompts.HostTokens), "1", "host")
	c.trtllm.histogram(out, "prompt_cached_tokens_per_request", &s.Prompts.Reused, s.ReusedTokens,
		func(bound int) bool {
			return bound == 0 || bound >= 64 && bound <= 8192
		})
}
