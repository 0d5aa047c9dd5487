package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// vllmDescriptions are those names of vLLM 0.33 that gateways and boards query. The
// label engine of vLLM is the data parallel rank.
func vllmDescriptions(constant prometheus.Labels) descriptions {
	d := describe("vllm:", constant, nil, [][2]string{
		{"kv_cache_usage_perc", "Share of the device pages in use, of the fullest pool, from 0 to 1."},
		{"gpu_cache_usage_perc", "As kv_cache_usage_perc, under the name of vLLM before 0.10."},
		{"num_requests_running", "Sequences that are running."},
		{"num_requests_waiting", "Requests that wait."},
		{"prefix_cache_queries_total", "Prompt tokens."},
		{"prefix_cache_hits_total", "Prompt tokens reused on the device."},
		{"external_prefix_cache_queries_total", "Prompt tokens not reused on the device."},
		{"external_prefix_cache_hits_total", "Prompt tokens reused from host memory."},
		{"prompt_tokens_total", "Prompt tokens."},
		{"prompt_tokens_cached_total", "Prompt tokens reused."},
		{"num_preemptions_total", "Always 0: an admission holds its pages until it is released."},
		{"kv_offload_load_bytes_total", "Bytes copied from host memory."},
		{"kv_offload_store_bytes_total", "Bytes copied to host memory."},
	})
	for name, help := range map[string]string{
		"prompt_tokens_by_source_total":        "Prompt tokens by where their keys and values came from.",
		"prompt_tokens_cached_by_source_total": "Prompt tokens reused, by the memory that had them.",
	} {
		d[name] = prometheus.NewDesc("vllm:"+name, help, []string{"source"}, constant)
	}
	d["cache_config_info"] = prometheus.NewDesc("vllm:cache_config_info", "The cache, in labels.",
		[]string{"block_size", "num_gpu_blocks", "num_cpu_blocks", "enable_prefix_caching"}, constant)
	return d
}

// fullest is the pool of which the greatest share of pages is in use: it is the one
// that admissions wait for.
func fullest(s *inspect.Stats) (p *inspect.PoolStats, usage float64) {
	for i := range s.Pools {
		if u := share(s.Pools[i].Primary); p == nil || u > usage {
			p, usage = &s.Pools[i], u
		}
	}
	return p, usage
}

// share is the share of pages in use.
func share(n inspect.TierPages) float64 {
	if n.Total == 0 {
		return 0
	}
	return float64(n.Used) / float64(n.Total)
}

// blockTokens is the number of tokens of a block, which all pools have.
func blockTokens(pools []windows.Pool) int {
	if len(pools) == 0 {
		return 0
	}
	return pools[0].TokensPerBlock
}

func (c *Collector) collectVLLM(out chan<- prometheus.Metric, s *inspect.Stats, pools []windows.Pool) {
	p, usage := fullest(s)
	if c.o.Aliases&AliasVLLMLegacy != 0 {
		c.vllm.gauge(out, "gpu_cache_usage_perc", usage)
	}
	if c.o.Aliases&AliasVLLM == 0 || p == nil {
		return
	}
	host := float64(c.calls.onHost.Load())
	device := float64(s.ReusedTokens) - host
	c.vllm.gauge(out, "kv_cache_usage_perc", usage)
	c.vllm.gauge(out, "num_requests_running", float64(s.Sequences))
	c.vllm.gauge(out, "num_requests_waiting", float64(c.o.Waiting()))
	c.vllm.counter(out, "prefix_cache_queries_total", float64(s.PromptTokens))
	c.vllm.counter(out, "prefix_cache_hits_total", device)
	c.vllm.counter(out, "external_prefix_cache_queries_total", float64(s.PromptTokens)-device)
	c.vllm.counter(out, "external_prefix_cache_hits_total", host)
	c.vllm.counter(out, "prompt_tokens_total", float64(s.PromptTokens))
	c.vllm.counter(out, "prompt_tokens_cached_total", float64(s.ReusedTokens))
	c.vllm.counter(out, "num_preemptions_total", 0)
	c.vllm.counter(out, "prompt_tokens_by_source_total", float64(s.PromptTokens-s.ReusedTokens), "local_compute")
	c.vllm.counter(out, "prompt_tokens_by_source_total", device, "local_cache_hit")
	c.vllm.counter(out, "prompt_tokens_by_source_total", host, "external_kv_transfer")
	c.vllm.counter(out, "prompt_tokens_cached_by_source_total", device, "device")
	c.vllm.counter(out, "prompt_tokens_cached_by_source_total", host, "host")
	all := sumOf(s)
	c.vllm.counter(out, "kv_offload_load_bytes_total", float64(all.BytesOnboarded))
	c.vllm.counter(out, "kv_offload_store_bytes_total", float64(all.BytesOffloaded))
	c.vllm.gauge(out, "cache_config_info", 1, strconv.Itoa(blockTokens(pools)), strconv.Itoa(p.Primary.Total), strconv.Itoa(p.Secondary.Total), "True")
}

func trtllmDescriptions(constant prometheus.Labels) descriptions {
	return describe("trtllm_", constant, nil, [][2]string{
		{"kv_cache_hit_rate", "Prompt tokens reused, as a share."},
		{"kv_cache_utilization", "Share of the device pages in use, of the fullest pool."},
		{"kv_cache_host_utilization", "Share of the host pages in use or cached, of the same pool."},
		{"kv_cache_max_blocks", "Device pages of the fullest pool."},
		{"kv_cache_free_blocks", "Device pages of the fullest pool that are not in use."},
		{"kv_cache_used_blocks", "Device pages of the fullest pool in use."},
		{"kv_cache_tokens_per_block", "Tokens of a block."},
		{"kv_cache_reused_blocks_total", "Pages reused, of all pools."},
		{"kv_cache_missed_blocks_total", "Prompt blocks not reused, of all pools."},
		{"kv_cache_onboard_bytes_total", "Bytes copied from host memory."},
		{"kv_cache_offload_bytes_total", "Bytes copied to host memory."},
		{"prompt_cached_tokens_total", "Prompt tokens reused."},
		{"num_requests_running", "Sequences that are running."},
		{"num_requests_waiting", "Requests that wait."},
	})
}

// sumOf adds the counters of all pools that the aliases have.
func sumOf(s *inspect.Stats) (all inspect.PoolCounters) {
	for i := range s.Pools {
		n := &s.Pools[i].PoolCounters
		all.ReusedFull += n.ReusedFull
		all.ReusedPartial += n.ReusedPartial
		all.Missed += n.Missed
		all.BytesOnboarded += n.BytesOnboarded
		all.BytesOffloaded += n.BytesOffloaded
	}
	return all
}

func (c *Collector) collectTensorRTLLM(out chan<- prometheus.Metric, s *inspect.Stats, pools []windows.Pool) {
	p, usage := fullest(s)
	if p == nil {
		return
	}
	rate := 0.0
	if s.PromptTokens > 0 {
		rate = float64(s.ReusedTokens) / float64(s.PromptTokens)
	}
	all := sumOf(s)
	host := p.Secondary
	host.Used += host.Cached
	c.trtllm.gauge(out, "kv_cache_hit_rate", rate)
	c.trtllm.gauge(out, "kv_cache_utilization", usage)
	c.trtllm.gauge(out, "kv_cache_host_utilization", share(host))
	c.trtllm.gauge(out, "kv_cache_max_blocks", float64(p.Primary.Total))
	c.trtllm.gauge(out, "kv_cache_free_blocks", float64(p.Primary.Total-p.Primary.Used))
	c.trtllm.gauge(out, "kv_cache_used_blocks", float64(p.Primary.Used))
	c.trtllm.gauge(out, "kv_cache_tokens_per_block", float64(blockTokens(pools)))
	c.trtllm.counter(out, "kv_cache_reused_blocks_total", float64(all.ReusedFull+all.ReusedPartial))
	c.trtllm.counter(out, "kv_cache_missed_blocks_total", float64(all.Missed))
	c.trtllm.counter(out, "kv_cache_onboard_bytes_total", float64(all.BytesOnboarded))
	c.trtllm.counter(out, "kv_cache_offload_bytes_total", float64(all.BytesOffloaded))
	c.trtllm.counter(out, "prompt_cached_tokens_total", float64(s.ReusedTokens))
	c.trtllm.gauge(out, "num_requests_running", float64(s.Sequences))
	c.trtllm.gauge(out, "num_requests_waiting", float64(c.o.Waiting()))
}
