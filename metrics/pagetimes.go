package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
)

// pageTimeBuckets are those of vLLM 0.33, in seconds. A server that reads native histograms
// gets them with an error below 10 %.
var pageTimeBuckets = []float64{
	.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
}

// pageTimes are the histograms of what WithPageObserver tells.
type pageTimes struct {
	own  [inspect.PageTimeKinds]*prometheus.HistogramVec // by pool
	vllm [inspect.PageTimeKinds]prometheus.Histogram     // nil: no aliases

	pending pending[inspect.PageTime]
}

func newPageTimes(own prometheus.Labels, aliases Aliases) *pageTimes {
	t := &pageTimes{}
	for kind, row := range [inspect.PageTimeKinds][3]string{
		inspect.PageLifetime: {"page_lifetime_seconds", "kv_block_lifetime_seconds", "Time from the store of a block on a sampled device page to its eviction."},
		inspect.PageIdle:     {"page_idle_before_eviction_seconds", "kv_block_idle_before_evict_seconds", "Time from the last use of a block on a sampled device page to its eviction."},
		inspect.PageReuseGap: {"page_reuse_gap_seconds", "kv_block_reuse_gap_seconds", "Time from a use of a block on a sampled device page to the next admission that reuses it."},
	} {
		options := prometheus.HistogramOpts{
			Name: "kvactor_" + row[0], Help: row[2], ConstLabels: own,
			Buckets: pageTimeBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}
		t.own[kind] = prometheus.NewHistogramVec(options, []string{"pool"})
		if aliases&AliasVLLM != 0 {
			options.Name = "vllm:" + row[1]
			t.vllm[kind] = prometheus.NewHistogram(options)
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

// enterPage enters a time in the histograms. What came before Attach is of no pool that has a
// name, and is dropped: the engine had just started.
func (c *Collector) enterPage(t inspect.PageTime) {
	c.mu.Lock()
	name := ""
	if int(t.Pool) < len(c.pools) {
		name = c.pools[t.Pool].Name
	}
	c.mu.Unlock()
	if name == "" {
		return
	}
	seconds := t.Duration.Seconds()
	c.times.own[t.Kind].WithLabelValues(name).Observe(seconds)
	if h := c.times.vllm[t.Kind]; h != nil {
		h.Observe(seconds)
	}
}
