package metrics

import "github.com/prometheus/client_golang/prometheus"

// descriptions are metrics by their names without the prefix.
type descriptions map[string]*prometheus.Desc

func (d descriptions) gauge(out chan<- prometheus.Metric, name string, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d[name], prometheus.GaugeValue, v, labels...)
}

func (d descriptions) counter(out chan<- prometheus.Metric, name string, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d[name], prometheus.CounterValue, v, labels...)
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
		{"requests_total", "Admissions that were served."},
		{"prompt_tokens_total", "Tokens of the prompts of served admissions."},
		{"reused_tokens_total", "Prompt tokens whose keys and values were reused."},
		{"rounds_total", "Rounds of the coordinator."},
		{"actor_restarts_total", "Actors that failed and were restarted."},
		{"sequences_running", "Sequences that are running."},
		{"requests_waiting", "Requests that wait for the host to admit them."},
	})
	pool := describe("kvactor_", constant, []string{"pool"}, [][2]string{
		{"pages_allocated_total", "Device pages taken for any purpose."},
		{"pages_reused_total", "Pages that admissions reused whole."},
		{"partial_reuses_total", "Admissions that reused a block in part."},
		{"blocks_missed_total", "Prompt blocks from the first that was not reused on."},
		{"pages_evicted_total", "Device pages whose contents were evicted."},
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
	d["pages"] = prometheus.NewDesc("kvactor_pages", "Pages by pool, tier and state.", []string{"pool", "tier", "state"}, constant)
	return d
}
