package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// pageTimeBuckets are those of vLLM 0.33, in seconds. A server that reads native histograms
// gets them with an error below 10 %.
var pageTimeBuckets = []float64{
	.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
}

// pageTimes are the histograms of what WithPageObserver tells.
type pageTimes struct {
	own  [inspect.PageTimeKinds]*prometheus.HistogramVec // by pool
	vllm [inspect.PageTimeKinds]*prometheus.HistogramVec // nil: no aliases

	// names are those of the pools, and empty before Attach. They belong to the lock of pending.
	names   []string
	pending pending[inspect.PageTime]
}

func newPageTimes(own prometheus.Labels, aliases Aliases) *pageTimes {
	t := &pageTimes{}
	t.pending.enter = t.enter
	for kind, row := range [inspect.PageTimeKinds][3]string{
		inspect.PageLifetime: {"page_lifetime_seconds", "kv_block_lifetime_seconds",
			"Time from the store of a block on a sampled device page to its eviction."},
		inspect.PageIdle: {"page_idle_before_eviction_seconds", "kv_block_idle_before_evict_seconds",
			"Time from the last use of a block on a sampled device page to its eviction."},
		inspect.PageReuseGap: {"page_reuse_gap_seconds", "kv_block_reuse_gap_seconds",
			"Time from a use of a block on a sampled device page to the next admission that reuses it."},
	} {
		t.own[kind] = durations("kvactor_"+row[0], row[2], own, pageTimeBuckets, "pool")
		if aliases&AliasVLLM != 0 {
			t.vllm[kind] = durations("vllm:"+row[1], row[2], own, pageTimeBuckets)
			t.vllm[kind].WithLabelValues() // exported before the first time, as vLLM does
		}
	}
	return t
}

func (t *pageTimes) collect(out chan<- prometheus.Metric) {
	t.pending.enterAll()
	for kind := range t.own {
		t.own[kind].Collect(out)
		if t.vllm[kind] != nil {
			t.vllm[kind].Collect(out)
		}
	}
}

// ObservePage notes a time in the history of a page. It is made for
// actors.WithPageObserver.
func (c *Collector) ObservePage(t inspect.PageTime) {
	if t.Kind < inspect.PageTimeKinds {
		c.times.pending.add(t)
	}
}

// attach enters what has been noted of the pools before, and says which pools there are.
func (t *pageTimes) attach(pools []windows.Pool) {
	t.pending.mu.Lock()
	defer t.pending.mu.Unlock()
	t.pending.enterLocked()
	t.names = make([]string, len(pools))
	for i := range pools {
		t.names[i] = pools[i].Name
	}
}

// enter enters a time in the histograms. What came before Attach is of no pool that has a
// name, and is dropped: the engine had just started.
func (t *pageTimes) enter(x inspect.PageTime) {
	if int(x.Pool) >= len(t.names) {
		return
	}
	seconds := x.Duration.Seconds()
	t.own[x.Kind].WithLabelValues(t.names[x.Pool]).Observe(seconds)
	if alias := t.vllm[x.Kind]; alias != nil {
		alias.WithLabelValues().Observe(seconds)
	}
}
