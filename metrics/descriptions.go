package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
)

// descriptions are metrics by their names without the prefix.
type descriptions map[string]*prometheus.Desc

func (d descriptions) gauge(out chan<- prometheus.Metric, name string, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d[name], prometheus.GaugeValue, v, labels...)
}

func (d descriptions) counter(out chan<- prometheus.Metric, name string, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d[name], prometheus.CounterValue, v, labels...)
}

// histogram exports counts of prompts by their tokens. sum is that of all tokens. bounds says
// which bounds are exported; nil: all.
func (d descriptions) histogram(out chan<- prometheus.Metric, name string, counts *inspect.TokenCounts, sum int64, bounds func(int) bool) {
	buckets, below := map[float64]uint64{}, uint64(0)
	last := len(counts) - 1
	for i, n := range counts[:last] {
		below += uint64(n)
		if bound := counts.Bound(i); bounds == nil || bounds(bound) {
			buckets[float64(bound)] = below
		}
	}
	out <- prometheus.MustNewConstHistogram(d[name], below+uint64(counts[last]), float64(sum), buckets)
}

// describe makes the descriptions of a table of names and helps.
func describe(prefix string, constant prometheus.Labels, labels []string, table [][2]string) descriptions {
	d := descriptions{}
	for _, row := range table {
		d[row[0]] = prometheus.NewDesc(prefix+row[0], row[1], labels, constant)
	}
	return d
}

func ownDescriptions(constant prometheus.Labels) descriptions {
	d := describe("kvactor_", constant, nil, [][2]string{
		{"up", "Whether the engine answered the scrape."},
		{"requests_total", "Prompts that were admitted, noted at the admission. One that was preempted and is admitted again counts in readmissions_total."},
		{"readmissions_total", "Admissions of requests that were admitted before: the host had preempted them, or a failure had lost them."},
		{"prompt_tokens_total", "Tokens of the prompts of requests_total."},
		{"reused_tokens_total", "Tokens of prompt_tokens_total whose keys and values were reused at the admission."},
		{"thrash_tokens_total", "Tokens of prompt_tokens_total that the cache had, evicted, and was asked for again before two to three times what it holds had come in. Prompts with multimodal items and lost checkpoints of states do not count."},
		{"invalidations_total", "Invalidations by session, salt, adapter or tokens, also those that found nothing."},
		{"invalidated_blocks_total", "Blocks that invalidations have forgotten."},
		{"rounds_total", "Requests that the coordinator has begun to serve, its own included."},
		{"actor_restarts_total", "Actors that failed and were restarted."},
		{"copies_refused_total", "Copies that the device has refused."},
		{"appended_tokens_total", "Tokens appended to sequences less those rewound, of each beam. The last token of an answer is never appended."},
		{"generated_tokens_total", "Tokens that the host has generated for its clients, those that ended an answer included."},
		{"ranks", "Devices that the engine's device stands for."},
		{"sequences_running", "Sequences that are running."},
		{"sequences_lost", "Running sequences that a failure has lost, and that their host has not released yet."},
		{"requests_waiting", "Requests that wait for the host to admit them."},
		{"admissions_waiting", "Requests for admission that wait for pages in the engine's queue."},
		{"calls_in_flight", "Calls that the engine has accepted and not answered yet."},
		{"calls_blocked", "Calls that wait to be accepted, because as many as may be are in flight."},
		{"request_prompt_tokens", "Tokens of each prompt of requests_total."},
		{"request_reused_tokens", "Reused tokens of each prompt of requests_total."},
	})
	pool := describe("kvactor_", constant, []string{"pool"}, [][2]string{
		{"pages_allocated_total", "Device pages taken for any purpose, also for readmissions."},
		{"pages_reused_total", "Pages that prompts of requests_total reused whole."},
		{"partial_reuses_total", "Prompts of requests_total that reused a block in part."},
		{"blocks_missed_total", "Blocks of the prompts of requests_total from the first that was not reused on."},
		{"pages_evicted_total", "Device pages whose contents were evicted, kept in host memory or not."},
		{"pages_offloaded_total", "Evicted pages whose contents host memory kept."},
		{"pages_dropped_total", "Pages of either tier whose contents eviction dropped."},
		{"pages_onboarded_total", "Pages copied from host memory to the device."},
		{"offloaded_bytes_total", "Bytes copied to host memory."},
		{"onboarded_bytes_total", "Bytes copied from host memory."},
		{"offload_saved_bytes_total", "Bytes not copied to host memory because they were there already."},
		{"offloads_without_copy_total", "Offloads of contents of which host memory had no copy."},
		{"offloads_waited_for_total", "Offloads whose copy whoever took the page had to wait for."},
		{"pages_offloaded_ahead_total", "Pages copied to host memory before anyone asked."},
		{"checkpoints_total", "Checkpoints of recurrent states that were made."},
		{"checkpoints_skipped_total", "Checkpoints for which no page was found."},
		{"pool_page_bytes", "Bytes of a page."},
		{"pool_block_tokens", "Tokens of a block."},
		{"pool_window_tokens", "Tokens of the attention window; 0 without a window."},
		{"pool_layers", "Layers whose contents lie in the pages."},
	})
	for name, desc := range pool {
		d[name] = desc
	}
	d["hit_tokens_total"] = prometheus.NewDesc("kvactor_hit_tokens_total", "Tokens of reused_tokens_total by where they were: host if a pool copied their block from host memory, else device.", []string{"tier"}, constant)
	d["missed_tokens_total"] = prometheus.NewDesc("kvactor_missed_tokens_total", "Tokens of prompt_tokens_total that were not reused, by why, noted at the admission.", []string{"reason"}, constant)
	d["resets_total"] = prometheus.NewDesc("kvactor_resets_total", "Resets, by what they forgot: idle leaves what running sequences hold, running does not, nor do a new epoch of the weights and other scales.", []string{"forgot"}, constant)
	d["weights_info"] = prometheus.NewDesc("kvactor_weights_info", "The epoch of the weights, in a label.", []string{"weights"}, constant)
	d["step_refusals_total"] = prometheus.NewDesc("kvactor_step_refusals_total", "Steps of appends, commits and releases that were refused in a call that was served, by the code of the refusal. Each try counts.", []string{"code"}, constant)
	d["memory_bytes"] = prometheus.NewDesc("kvactor_memory_bytes", "Memory of the engine on all ranks, by device and host, and by what it is for: on the device pages; on the host contents that were evicted, copies ahead of evictions, saves to a store, and about what the records of pages and blocks take.", []string{"memory", "part"}, constant)
	d["pages"] = prometheus.NewDesc("kvactor_pages", "Pages by pool, tier and state.", []string{"pool", "tier", "state"}, constant)
	return d
}
