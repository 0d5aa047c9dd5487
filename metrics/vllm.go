package metrics

import (
	"strconv"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

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

// collectVLLM exports those metrics of vLLM 0.33 of which an engine knows the truth.
// docs/observability.md says of all others why they are absent. The label engine of vLLM is
// the data parallel rank.
func (c *Collector) collectVLLM(to scrape, s *inspect.Stats, pools []windows.Pool) {
	p, usage := fullest(s)
	if c.o.Aliases&AliasVLLMLegacy != 0 {
		to.gauge("gpu_cache_usage_perc", usage,
			"As kv_cache_usage_perc, under the name of vLLM before 0.10.")
	}
	if c.o.Aliases&AliasVLLM == 0 || p == nil {
		return
	}
	waiting := float64(c.waiting(s))
	to.gauge("kv_cache_usage_perc", usage,
		"Share of the device pages in use, of the fullest pool, from 0 to 1.")
	to.gauge("num_requests_running", float64(s.Sequences), "Sequences that are running.")
	to.gauge("num_requests_waiting", waiting,
		"Requests that wait for the host to admit them, and those that wait for pages.")
	to.gauge("num_requests_waiting_by_reason", waiting,
		"Requests that wait; all wait for capacity.", "reason", "capacity")
	if c.o.Preemptions != nil {
		to.counter("num_preemptions_total", c.o.Preemptions(),
			"Sequences that the host has released to admit them again, once for each time.")
	}
	if c.o.Generated != nil {
		to.counter("generation_tokens_total", c.o.Generated(),
			"Tokens that the host has generated for its clients.")
	}
	vllmPrompts(to, s)
	all := sumOf(s, nil)
	to.counter("kv_offload_load_bytes_total", all.BytesOnboarded, "Bytes copied from host memory.")
	to.counter("kv_offload_store_bytes_total", all.BytesOffloaded, "Bytes copied to host memory.")
	if s.Store != nil {
		vllmStore(to, s.Store)
	}
	to.gauge("cache_config_info", 1,
		"The cache, in labels.", "block_size", strconv.Itoa(blockTokens(pools)),
		"num_gpu_blocks", strconv.Itoa(p.Primary.Total), "num_cpu_blocks",
		strconv.Itoa(p.Secondary.Total), "enable_prefix_caching",
		c.configured(func(cache *windows.Config) string { return title(cache.EnableBlockReuse) }))
}

// vllmPrompts exports what vLLM counts of prompts. It counts them when they end.
func vllmPrompts(to scrape, s *inspect.Stats) {
	host := s.Prompts.HostTokens
	device, computed := s.ReusedTokens-host, s.PromptTokens-s.ReusedTokens
	to.counter("prefix_cache_queries_total", s.PromptTokens,
		"Tokens of the prompts that were admitted, once for each request, however often it was "+
			"preempted.")
	to.counter("prefix_cache_hits_total", device, "Of these, tokens reused on the device.")
	to.counter("external_prefix_cache_queries_total", s.PromptTokens-device,
		"Prompt tokens that were looked up in host memory: those not reused on the device.")
	to.counter("external_prefix_cache_hits_total", host, "Prompt tokens reused from host memory.")
	to.counter("prompt_tokens_total", s.PromptTokens,
		"Tokens of the prompts that were admitted, once for each request.")
	to.counter("prompt_tokens_cached_total", s.ReusedTokens,
		"Tokens of prompt_tokens_total that were reused when the request was first admitted.")
	for source, n := range map[string]int64{
		"local_compute": computed, "local_cache_hit": device, "external_kv_transfer": host,
	} {
		to.counter("prompt_tokens_by_source_total", n,
			"Prompt tokens by where their keys and values came from.", "source", source)
	}
	for source, n := range map[string]int64{"device": device, "host": host} {
		to.counter("prompt_tokens_cached_by_source_total", n,
			"Prompt tokens reused, by the memory that had them.", "source", source)
	}
	// No bound for prompts without tokens: there are none.
	some := func(bound int) bool { return bound > 0 }
	to.tokens("request_prompt_tokens", &s.Prompts.Lengths, s.PromptTokens, some,
		"Tokens of each prompt, noted when it is first admitted.")
	to.tokens("request_prefill_kv_computed_tokens", &s.Prompts.Computed, computed, some,
		"Tokens of each prompt that were not reused, noted when it is first admitted.")
}

// vllmStore exports the store as vLLM's tier below host memory.
func vllmStore(to scrape, s *inspect.StoreStats) {
	to.counter("kv_offload_tiering_chunk_queries_total", s.FetchedObjects+s.Misses+s.Rejected,
		"Pages that the store was asked for.", "tier", "store")
	to.counter("kv_offload_tiering_chunk_hits_total", s.FetchedObjects,
		"Pages that the store had.", "tier", "store")
	to.counter("kv_offload_tiering_read_bytes_total", s.FetchedBytes,
		"Bytes read from the store.", "tier", "store")
	to.counter("kv_offload_tiering_write_bytes_total", s.SavedBytes,
		"Bytes written to the store.", "tier", "store")
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
