package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
)

// holdCounters holds each exported metric that counts against what clients saw, where they
// can, or against the others.
func holdCounters(t *testing.T, m *scraped, c *seen, s scheduler.Counters) {
	assert.Positive(t, s.Preemptions)
	assert.Positive(t, s.Readmissions)
	assert.Positive(t, s.Retries)
	assert.Positive(t, s.AcceptedTokens)
	assert.Positive(t, c.cached)
	h := &held{t: t, m: m, done: map[string]bool{}}
	h.prompts(c, s)
	h.generated(c, s)
	h.blocks(c)
	h.pages()
	h.calls(s)
	h.stores()
	h.gauges()
	for name := range m.kinds {
		assert.True(t, h.done[name], "%s is exported, and nothing holds it", name)
	}
}

// held notes which metrics were looked at.
type held struct {
	t    *testing.T
	m    *scraped
	done map[string]bool
}

// is holds that names have a value, all of them, or the samples with some labels.
func (h *held) is(want float64, name string, labels ...string) {
	h.done[strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")] = true
	assert.InDelta(h.t, want, h.m.sum(name, labels...), 1e-6, "%s %v", name, labels)
}

// within holds that a name has a value between two.
func (h *held) within(low, high float64, name string, labels ...string) {
	h.done[strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")] = true
	got := h.m.sum(name, labels...)
	assert.True(h.t, low <= got && got <= high, "%s %v is %g, not %g to %g", name, labels, got, low,
		high)
}

const many = 1e12 // no bound

func (h *held) prompts(c *seen, s scheduler.Counters) {
	prompt, cached, requests := float64(c.prompt), float64(c.cached), float64(c.requests)
	for _, name := range []string{"kvactor_requests_total", "kvactor_request_prompt_tokens_count",
		"kvactor_request_reused_tokens_count",
		"vllm:request_prompt_tokens_count", "vllm:request_prefill_kv_computed_tokens_count",
		"trtllm_prompt_cached_tokens_per_request_count"} {
		h.is(requests, name)
	}
	for _, name := range []string{"kvactor_prompt_tokens_total", "kvactor_request_prompt_tokens_sum",
		"vllm:prefix_cache_queries_total",
		"vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total",
		"vllm:request_prompt_tokens_sum", "trtllm_prompt_tokens_total"} {
		h.is(prompt, name)
	}
	for _, name := range []string{"kvactor_reused_tokens_total", "kvactor_hit_tokens_total",
		"kvactor_request_reused_tokens_sum", "vllm:prompt_tokens_cached_total",
		"vllm:prompt_tokens_cached_by_source_total", "trtllm_prompt_cached_tokens_total",
		"trtllm_prompt_cache_hit_tokens_total", "trtllm_prompt_cached_tokens_per_request_sum"} {
		h.is(cached, name)
	}
	device, host := h.m.sum("kvactor_hit_tokens_total", "device"),
		h.m.sum("kvactor_hit_tokens_total", "host")
	h.is(device, "vllm:prefix_cache_hits_total")
	h.is(prompt-device, "vllm:external_prefix_cache_queries_total")
	h.is(host, "vllm:external_prefix_cache_hits_total")
	h.is(prompt-cached, "kvactor_missed_tokens_total")
	h.within(0, prompt-cached, "kvactor_thrash_tokens_total")
	h.is(2, "kvactor_resets_total", "idle")
	h.is(1, "kvactor_resets_total", "running")
	h.is(0, "kvactor_resets_total", "weights")
	h.is(0, "kvactor_resets_total", "scales")
	// Of requests for likelihoods, whose namespaces are forgotten with them.
	h.within(float64(c.likelihoods), many, "kvactor_invalidations_total")
	h.within(1, many, "kvactor_invalidated_blocks_total")
	h.is(prompt-cached, "vllm:prompt_tokens_by_source_total", "local_compute")
	h.is(prompt-cached, "vllm:request_prefill_kv_computed_tokens_sum")
	h.is(float64(s.Readmissions), "kvactor_readmissions_total")
	h.is(float64(s.Preemptions), "vllm:num_preemptions_total")
	h.is(requests+float64(s.Readmissions), "kvactor_admissions_total", "admitted")
	assert.EqualValues(h.t, c.requests, s.Prompts)
	assert.EqualValues(h.t, c.prompt, s.PromptTokens)
	assert.EqualValues(h.t, c.cached, s.ReusedTokens)
}

func (h *held) generated(c *seen, s scheduler.Counters) {
	least := float64(c.completion)
	for _, name := range []string{"kvactor_generated_tokens_total", "vllm:generation_tokens_total",
		"trtllm_generation_tokens_total"} {
		h.within(least, least+float64(c.unread), name)
		h.is(float64(s.GeneratedTokens), name)
	}
	// The last token of each answer is never appended, nor one that is part of the prompt of a
	// readmission.
	h.within(1, float64(s.GeneratedTokens)-float64(c.requests), "kvactor_appended_tokens_total")
}

func (h *held) blocks(c *seen) {
	for _, pool := range []string{"wfullh2", "w64h2"} {
		full, part := h.m.sum("kvactor_pages_reused_total", pool),
			h.m.sum("kvactor_partial_reuses_total", pool)
		missed := h.m.sum("kvactor_blocks_missed_total", pool)
		h.within(0, float64(c.cached)/16, "kvactor_pages_reused_total", pool)
		h.within(0, float64(c.requests), "kvactor_partial_reuses_total", pool)
		if pool == "wfullh2" {
			h.is(float64(c.blocks)-full-part, "kvactor_blocks_missed_total", pool)
			h.within(16*full, 16*full+15*part, "kvactor_reused_tokens_total")
		} else { // blocks that the window has passed count nowhere
			h.within(0, float64(c.blocks)-full-part, "kvactor_blocks_missed_total", pool)
		}
		assert.Positive(h.t, missed)
	}
	full, part := h.m.sum("kvactor_pages_reused_total"), h.m.sum("kvactor_partial_reuses_total")
	h.is(full+part, "trtllm_kv_cache_reused_blocks_total")
	h.is(full+part, "trtllm_kv_cache_iter_reused_blocks_total")
	h.is(full, "trtllm_kv_cache_iter_full_reused_blocks_total")
	h.is(part, "trtllm_kv_cache_iter_partial_reused_blocks_total")
	missed := h.m.sum("kvactor_blocks_missed_total")
	h.is(missed, "trtllm_kv_cache_missed_blocks_total")
	h.is(missed, "trtllm_kv_cache_iter_missed_blocks_total")
	h.is((full+part)/(full+part+missed), "trtllm_kv_cache_hit_rate")
}

func (h *held) pages() {
	for _, pool := range []string{"wfullh2", "w64h2"} {
		bytes := h.m.sum("kvactor_pool_page_bytes", pool)
		evicted, offloaded := h.m.sum("kvactor_pages_evicted_total", pool),
			h.m.sum("kvactor_pages_offloaded_total", pool)
		saved, onboarded := h.m.sum("kvactor_offload_saved_bytes_total", pool),
			h.m.sum("kvactor_pages_onboarded_total", pool)
		without := h.m.sum("kvactor_offloads_without_copy_total", pool)
		h.within(1, many, "kvactor_pages_allocated_total", pool)
		h.within(1, h.m.sum("kvactor_pages_allocated_total", pool), "kvactor_pages_evicted_total", pool)
		h.within(1, evicted, "kvactor_pages_offloaded_total", pool)
		h.within(evicted-offloaded, many, "kvactor_pages_dropped_total", pool)
		h.within(0, many, "kvactor_pages_onboarded_total", pool)
		h.is(bytes*onboarded, "kvactor_onboarded_bytes_total", pool)
		h.within(0, offloaded, "kvactor_offloads_without_copy_total", pool)
		h.within(0, without, "kvactor_offloads_waited_for_total", pool)
		h.is(bytes*(offloaded-without), "kvactor_offload_saved_bytes_total", pool)
		ahead := h.m.sum("kvactor_pages_offloaded_ahead_total", pool)
		h.within(0, many, "kvactor_pages_offloaded_ahead_total", pool)
		h.within(0, bytes*(without+ahead), "kvactor_offloaded_bytes_total", pool)
		h.within(saved, saved, "kvactor_offload_saved_bytes_total", pool)
		h.is(0, "kvactor_checkpoints_total", pool)
		h.is(0, "kvactor_checkpoints_skipped_total", pool)
	}
	down, up := h.m.sum("kvactor_offloaded_bytes_total"), h.m.sum("kvactor_onboarded_bytes_total")
	h.is(down, "vllm:kv_offload_store_bytes_total")
	h.is(up, "vllm:kv_offload_load_bytes_total")
	h.is(down, "trtllm_kv_cache_offload_bytes_total")
	h.is(up, "trtllm_kv_cache_onboard_bytes_total")
	h.within(1, h.m.sum("kvactor_pages_allocated_total"), "trtllm_kv_cache_gen_alloc_blocks_total")
	h.is(0, "kvactor_copies_refused_total")
}

func (h *held) calls(s scheduler.Counters) {
	h.within(1, failures, "kvactor_actor_restarts_total")
	h.within(1, many, "kvactor_admissions_total", "out_of_pages")
	// Each call is at least one round.
	calls := h.m.sum("kvactor_call_duration_seconds_count")
	h.within(1, calls, "kvactor_call_duration_seconds_count", "admit")
	h.within(float64(s.Steps), many, "kvactor_call_duration_seconds_count", "commit")
	h.within(1, many, "kvactor_rounds_total")
	h.within(1, failures, "kvactor_call_refusals_total", "internal")
	h.within(float64(s.Preemptions), many, "kvactor_step_refusals_total", "out_of_pages")
	h.within(0, float64(s.Retries), "kvactor_step_refusals_total", "sequence_lost")
	for _, call := range []string{"admit", "append", "commit", "release"} {
		n := h.m.sum("kvactor_call_duration_seconds_count", call)
		h.within(1, n, "kvactor_stage_duration_seconds_count", call, "queue")
	}
	for _, stream := range []string{"offload", "onboard"} {
		bytes := h.m.sum("kvactor_" + stream + "ed_bytes_total")
		h.within(bytes, many, "kvactor_link_bytes_total", stream)
	}
	h.within(1e-9, many, "kvactor_link_busy_seconds_total")
	h.within(1, many, "kvactor_copy_duration_seconds_count")
	h.within(1, many, "kvactor_copy_latency_seconds_count")
	for _, vllm := range []string{"load", "store"} {
		stream := map[string]string{"load": "onboard", "store": "offload"}[vllm]
		bytes, copies := h.m.sum("kvactor_link_bytes_total", stream),
			h.m.sum("kvactor_copy_duration_seconds_count", stream)
		h.is(h.m.sum("kvactor_link_busy_seconds_total", stream), "vllm:kv_offload_"+vllm+"_time_total")
		h.is(bytes, "vllm:kv_offload_"+vllm+"_size_sum")
		h.is(copies, "vllm:kv_offload_"+vllm+"_size_count")
	}
	h.is(h.m.sum("vllm:kv_offload_load_size_sum")+h.m.sum("vllm:kv_offload_store_size_sum"),
		"vllm:kv_offload_total_bytes_total")
	h.is(h.m.sum("vllm:kv_offload_load_time_total")+h.m.sum("vllm:kv_offload_store_time_total"),
		"vllm:kv_offload_total_time_total")
	h.is(h.m.sum("vllm:kv_offload_total_bytes_total"), "vllm:kv_offload_size_sum")
	for own, vllm := range map[string]string{
		"kvactor_page_lifetime_seconds":             "vllm:kv_block_lifetime_seconds",
		"kvactor_page_reuse_gap_seconds":            "vllm:kv_block_reuse_gap_seconds",
		"kvactor_page_idle_before_eviction_seconds": "vllm:kv_block_idle_before_evict_seconds",
	} {
		h.within(0, h.m.sum("kvactor_pages_allocated_total"), own+"_count")
		h.is(h.m.sum(own+"_count"), vllm+"_count")
	}
}

// gauges holds what there is when no request runs any more.
func (h *held) gauges() {
	for _, name := range []string{
		"kvactor_sequences_running", "kvactor_sequences_lost", "kvactor_requests_waiting",
		"kvactor_admissions_waiting",
		"kvactor_calls_blocked", "kvactor_calls_in_flight", "kvactor_store_breaker_open",
		"vllm:num_requests_running",
		"vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason", "vllm:kv_cache_usage_perc",
		"vllm:gpu_cache_usage_perc",
		"trtllm_num_requests_running", "trtllm_num_requests_waiting", "trtllm_kv_cache_used_blocks",
		"trtllm_kv_cache_utilization",
	} {
		h.is(0, name)
	}
	for _, name := range []string{"kvactor_up", "kvactor_weights_info", "vllm:cache_config_info",
		"trtllm_kv_cache_config_info"} {
		h.is(1, name)
	}
	h.is(0, "kvactor_pages", "primary", "used")
	h.is(1, "kvactor_ranks")
	h.memory()
	h.is(2*30, "kvactor_pages", "primary")
	h.is(2*24, "kvactor_pages", "secondary")
	h.is(2*16, "kvactor_pool_block_tokens")
	h.is(64, "kvactor_pool_window_tokens")
	layers := h.m.sum("kvactor_pool_layers")
	h.within(2, layers, "kvactor_pool_layers")
	// Keys and values of 16 tokens, of 2 heads of 4-byte numbers.
	h.within(layers*16*2*2*4, many, "kvactor_pool_page_bytes")
	h.is(30, "trtllm_kv_cache_max_blocks")
	h.is(30, "trtllm_kv_cache_free_blocks")
	h.is(16, "trtllm_kv_cache_tokens_per_block")
	cached := h.m.sum("kvactor_pages", "secondary", "cached")
	h.is(cached/(2*24), "trtllm_kv_cache_host_utilization")
}

// memory holds the bytes against the pages of both pools.
func (h *held) memory() {
	device, host := 0.0, 0.0
	for _, pool := range []string{"wfullh2", "w64h2"} {
		page := h.m.sum("kvactor_pool_page_bytes", pool)
		device += 30 * page
		host += 24 * page
	}
	h.is(device, "kvactor_memory_bytes", "device", "pages")
	h.is(host, "kvactor_memory_bytes", "host", "contents")
	for _, part := range []string{"ahead", "saves", "records"} {
		h.within(1, many, "kvactor_memory_bytes", "host", part)
	}
}

func (h *held) stores() {
	saved, fetched := h.m.sum("kvactor_store_saved_objects_total"),
		h.m.sum("kvactor_store_fetched_objects_total")
	bytes := h.m.sum("kvactor_pool_page_bytes", "wfullh2") // as in the other pool
	h.within(1, many, "kvactor_store_saved_objects_total")
	h.within(bytes*saved, 1.1*bytes*saved, "kvactor_store_saved_bytes_total")
	h.within(bytes*fetched, 1.1*bytes*fetched, "kvactor_store_fetched_bytes_total")
	h.within(0, many, "kvactor_store_fetched_objects_total")
	h.within(0, many, "kvactor_store_misses_total")
	h.within(0, many, "kvactor_store_dropped_total")
	h.is(0, "kvactor_store_rejected_total")
	h.is(0, "kvactor_store_replaced_total")
	h.is(0, "kvactor_store_errors_total")
	h.is(0, "kvactor_store_breaker_opened_total")
	h.within(1, many, "kvactor_store_call_duration_seconds_count")
	h.is(fetched+h.m.sum("kvactor_store_misses_total"), "vllm:kv_offload_tiering_chunk_queries_total")
	h.is(fetched, "vllm:kv_offload_tiering_chunk_hits_total")
	h.is(h.m.sum("kvactor_store_fetched_bytes_total"), "vllm:kv_offload_tiering_read_bytes_total")
	h.is(h.m.sum("kvactor_store_saved_bytes_total"), "vllm:kv_offload_tiering_write_bytes_total")
	h.is(fetched, "trtllm_kv_cache_disk_prefetch_blocks_total")
}
