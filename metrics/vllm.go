package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// vllmDescriptions are those metrics of vLLM 0.33 of which an engine knows the truth.
// docs/observability.md says of all others why they are absent. The label engine of vLLM is
// the data parallel rank.
func vllmDescriptions(constant prometheus.Labels) descriptions {
	d := describe("vllm:", constant, nil, [][2]string{
		{"kv_cache_usage_perc", "Share of the device pages in use, of the fullest pool, from 0 to 1."},
		{"gpu_cache_usage_perc", "As kv_cache_usage_perc, under the name of vLLM before 0.10."},
		{"num_requests_running", "Sequences that are running."},
		{"num_requests_waiting",
			"Requests that wait for the host to admit them, and those that wait for pages."},
		{"prefix_cache_queries_total",
			"Tokens of the prompts that were admitted, once for each request, however often it was preempted."},
		{"prefix_cache_hits_total", "Of these, tokens reused on the device."},
		{"external_prefix_cache_queries_total",
			"Prompt tokens that were looked up in host memory: those not reused on the device."},
		{"external_prefix_cache_hits_total", "Prompt tokens reused from host memory."},
		{"prompt_tokens_total", "Tokens of the prompts that were admitted, once for each request."},
		{"prompt_tokens_cached_total",
			"Tokens of prompt_tokens_total that were reused when the request was first admitted."},
		{"generation_tokens_total", "Tokens that the host has generated for its clients."},
		{"num_preemptions_total",
			"Sequences that the host has released to admit them again, once for each time."},
		{"request_prompt_tokens", "Tokens of each prompt, noted when it is first admitted."},
		{"request_prefill_kv_computed_tokens",
			"Tokens of each prompt that were not reused, noted when it is first admitted."},
		{"kv_offload_load_bytes_total", "Bytes copied from host memory."},
		{"kv_offload_store_bytes_total", "Bytes copied to host memory."},
	})
	for name, row := range map[string][2]string{
		"prompt_tokens_by_source_total": {"source",
			"Prompt tokens by where their keys and values came from."},
		"prompt_tokens_cached_by_source_total": {"source",
			"Prompt tokens reused, by the memory that had them."},
		"num_requests_waiting_by_reason": {"reason",
			"Requests that wait; all wait for capacity."},
		"kv_offload_tiering_chunk_queries_total": {"tier", "Pages that the store was asked for."},
		"kv_offload_tiering_chunk_hits_total":    {"tier", "Pages that the store had."},
		"kv_offload_tiering_read_bytes_total":    {"tier", "Bytes read from the store."},
		"kv_offload_tiering_write_bytes_total":   {"tier", "Bytes written to the store."},
	} {
		d[name] = prometheus.NewDesc("vllm:"+name, row[1], []string{row[0]}, constant)
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

func (c *Collector) collectVLLM(
	out chan<- prometheus.Metric, s *inspect.Stats, pools []windows.Pool,
) {
	p, usage := fullest(s)
	if c.o.Aliases&AliasVLLMLegacy != 0 {
		c.vllm.gauge(out, "gpu_cache_usage_perc", usage)
	}
	if c.o.Aliases&AliasVLLM == 0 || p == nil {
		return
	}
	waiting := float64(c.waiting(s))
	c.vllm.gauge(out, "kv_cache_usage_perc", usage)
	c.vllm.gauge(out, "num_requests_running", float64(s.Sequences))
	c.vllm.gauge(out, "num_requests_waiting", waiting)
	c.vllm.gauge(out, "num_requests_waiting_by_reason", waiting, "capacity")
	if c.o.Preemptions != nil {
		c.vllm.counter(out, "num_preemptions_total", float64(c.o.Preemptions()))
	}
	if c.o.Generated != nil {
		c.vllm.counter(out, "generation_tokens_total", float64(c.o.Generated()))
	}
	c.vllmPrompts(out, s)
	all := sumOf(s, nil)
	c.vllm.counter(out, "kv_offload_load_bytes_total", float64(all.BytesOnboarded))
	c.vllm.counter(out, "kv_offload_store_bytes_total", float64(all.BytesOffloaded))
	if s.Store != nil {
		c.vllmStore(out, s.Store)
	}
	c.vllm.gauge(out, "cache_config_info", 1, strconv.Itoa(blockTokens(pools)),
		strconv.Itoa(p.Primary.Total), strconv.Itoa(p.Secondary.Total),
		c.configured(func(cache *windows.Config) string { return title(cache.EnableBlockReuse) }))
}

// vllmPrompts exports what vLLM counts of prompts. It counts them when they end.
func (c *Collector) vllmPrompts(out chan<- prometheus.Metric, s *inspect.Stats) {
	host := float64(s.Prompts.HostTokens)
	device, computed := float64(s.ReusedTokens)-host, s.PromptTokens-s.ReusedTokens
	c.vllm.counter(out, "prefix_cache_queries_total", float64(s.PromptTokens))
	c.vllm.counter(out, "prefix_cache_hits_total", device)
	c.vllm.counter(out, "external_prefix_cache_queries_total", float64(s.PromptTokens)-device)
	c.vllm.counter(out, "external_prefix_cache_hits_total", host)
	c.vllm.counter(out, "prompt_tokens_total", float64(s.PromptTokens))
	c.vllm.counter(out, "prompt_tokens_cached_total", float64(s.ReusedTokens))
	c.vllm.counter(out, "prompt_tokens_by_source_total", float64(computed), "local_compute")
	c.vllm.counter(out, "prompt_tokens_by_source_total", device, "local_cache_hit")
	c.vllm.counter(out, "prompt_tokens_by_source_total", host, "external_kv_transfer")
	c.vllm.counter(out, "prompt_tokens_cached_by_source_total", device, "device")
	c.vllm.counter(out, "prompt_tokens_cached_by_source_total", host, "host")
	// No bound for prompts without tokens: there are none.
	some := func(bound int) bool { return bound > 0 }
	c.vllm.histogram(out, "request_prompt_tokens", &s.Prompts.Lengths, s.PromptTokens, some)
	c.vllm.histogram(out, "request_prefill_kv_computed_tokens", &s.Prompts.Computed, computed, some)
}

// vllmStore exports the store as vLLM's tier below host memory.
func (c *Collector) vllmStore(out chan<- prometheus.Metric, s *inspect.StoreStats) {
	const tier = "store"
	c.vllm.counter(out, "kv_offload_tiering_chunk_queries_total",
		float64(s.FetchedObjects+s.Misses+s.Rejected), tier)
	c.vllm.counter(out, "kv_offload_tiering_chunk_hits_total", float64(s.FetchedObjects), tier)
	c.vllm.counter(out, "kv_offload_tiering_read_bytes_total", float64(s.FetchedBytes), tier)
	c.vllm.counter(out, "kv_offload_tiering_write_bytes_total", float64(s.SavedBytes), tier)
}

// waiting is the number of requests that wait, before the engine and in it.
func (c *Collector) waiting(s *inspect.Stats) int { return c.o.Waiting() + s.Waiting }

// title writes a value as Python does.
func title(is bool) string {
	if is {
		return "True"
	}
	return "False"
}
