package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// transferSizes are vLLM's buckets of the bytes of a transfer.
var transferSizes = []float64{1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6}

// vllmTransfers are vLLM's metrics of copies between device and host memory, of hosts whose
// device tells of copies.
type vllmTransfers struct {
	load, store *vllmTransfer
	// legacy have the direction in a label: they are deprecated.
	bytes, seconds *prometheus.CounterVec
	sizes          *prometheus.HistogramVec
	aliases        Aliases
}

// vllmTransfer is one direction.
type vllmTransfer struct {
	told      atomic.Bool // there has been a copy
	seconds   prometheus.Counter
	size      prometheus.Histogram
	direction string
}

func newVLLMTransfers(constant prometheus.Labels, aliases Aliases) *vllmTransfers {
	one := func(name, direction, what string) *vllmTransfer {
		return &vllmTransfer{
			direction: direction,
			seconds: prometheus.NewCounter(prometheus.CounterOpts{
				Name: "vllm:kv_offload_" + name + "_time_total", Help: "Time for which copies " + what +
					" host memory were under way, in seconds.", ConstLabels: constant,
			}),
			size: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "vllm:kv_offload_" + name + "_size", Help: "Bytes of a batch of copies " + what +
					" host memory.", ConstLabels: constant, Buckets: transferSizes,
			}),
		}
	}
	return &vllmTransfers{
		load: one("load", "CPU_to_GPU", "from"), store: one("store", "GPU_to_CPU", "to"),
		aliases: aliases,
		bytes: counters("vllm:kv_offload_total_bytes_total",
			"Bytes copied, by direction. Deprecated by vLLM.", constant, "transfer_type"),
		seconds: counters("vllm:kv_offload_total_time_total",
			"Time for which copies were under way, by direction. Deprecated by vLLM.", constant,
			"transfer_type"),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vllm:kv_offload_size",
			Help: "Bytes of a batch of copies, by direction. Deprecated by vLLM.", ConstLabels: constant,
			Buckets: transferSizes,
		}, []string{"transfer_type"}),
	}
}

// of is the direction of a stream of an engine; nil for copies that stay on the device or in
// a hand-over.
func (t *vllmTransfers) of(stream string) *vllmTransfer {
	switch stream {
	case "offload":
		return t.store
	case "onboard", "onboard bulk":
		return t.load
	}
	return nil
}

// copied notes a batch of copies.
func (t *vllmTransfers) copied(stream string, busy time.Duration, bytes int64) {
	x := t.of(stream)
	if x == nil {
		return
	}
	x.told.Store(true)
	x.seconds.Add(busy.Seconds())
	x.size.Observe(float64(bytes))
	t.bytes.WithLabelValues(x.direction).Add(float64(bytes))
	t.seconds.WithLabelValues(x.direction).Add(busy.Seconds())
	t.sizes.WithLabelValues(x.direction).Observe(float64(bytes))
}

// collect exports what was told. Nothing is exported of a device that tells nothing: zeros
// would say that there were no copies.
func (t *vllmTransfers) collect(out chan<- prometheus.Metric) {
	for _, x := range []*vllmTransfer{t.load, t.store} {
		if t.aliases&AliasVLLM != 0 && x.told.Load() {
			x.seconds.Collect(out)
			x.size.Collect(out)
		}
	}
	if t.aliases&AliasVLLMLegacy != 0 {
		t.bytes.Collect(out)
		t.seconds.Collect(out)
		t.sizes.Collect(out)
	}
}
