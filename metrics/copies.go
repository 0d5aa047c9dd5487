package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// copies are the metrics of the device's copies, by stream.
type copies struct {
	busy, moved *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	latencies   *prometheus.HistogramVec
	vllm        *vllmTransfers // nil: no aliases
}

// copyBuckets are in seconds. A batch of one small page takes some µs on a link of 50 GB/s,
// a batch of a gigabyte some 20 ms.
var copyBuckets = []float64{5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2,
	5e-2, 1e-1, 1}

func newCopies(constant prometheus.Labels, aliases Aliases) copies {
	c := copies{
		busy: counters("kvactor_link_busy_seconds_total",
			"Time for which copies of a stream were under way, by the device's clock.", constant, "stream"),
		moved: counters("kvactor_link_bytes_total", "Bytes that the copies of a stream have moved.",
			constant, "stream"),
		durations: durations("kvactor_copy_duration_seconds",
			"Time for which a batch of copies was under way, by the device's clock.", constant,
			copyBuckets, "stream"),
		latencies: durations("kvactor_copy_latency_seconds",
			"Time from the order of a batch of copies to its end: the longest that what needs it can "+
				"have waited.",
			constant, copyBuckets, "stream"),
	}
	if aliases&(AliasVLLM|AliasVLLMLegacy) != 0 {
		c.vllm = newVLLMTransfers(constant, aliases)
	}
	return c
}

func (c *copies) collect(out chan<- prometheus.Metric) {
	c.busy.Collect(out)
	c.moved.Collect(out)
	c.durations.Collect(out)
	c.latencies.Collect(out)
	if c.vllm != nil {
		c.vllm.collect(out)
	}
}

// Copied notes a batch of copies of a stream that has ended, for hosts whose device tells:
// busy is for how long it was under way. gpu.Spec.Trace is what tells.
func (c *Collector) Copied(stream string, busy time.Duration, bytes int64) {
	c.copies.busy.WithLabelValues(stream).Add(busy.Seconds())
	c.copies.moved.WithLabelValues(stream).Add(float64(bytes))
	c.copies.durations.WithLabelValues(stream).Observe(busy.Seconds())
	if c.copies.vllm != nil {
		c.copies.vllm.copied(stream, busy, bytes)
	}
}

// CopyEnded notes for how long a batch of copies has been ordered when it ends, beside Copied.
// The engine does not wait for copies: what does is a kernel or a copy on another stream, and no
// longer than this. A device on which orders and copies have one clock can tell, as gpu/sim.
func (c *Collector) CopyEnded(stream string, latency time.Duration) {
	c.copies.latencies.WithLabelValues(stream).Observe(latency.Seconds())
}
