package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
)

// storeDescriptions are the metrics of an engine's store. Engines without one export none.
func storeDescriptions(constant prometheus.Labels) descriptions {
	return describe("kvactor_store_", constant, nil, [][2]string{
		{"saved_objects_total", "Objects written to the store."},
		{"saved_bytes_total", "Bytes of the objects written to the store."},
		{"fetched_objects_total", "Objects read from the store that were what was asked for."},
		{"fetched_bytes_total", "Bytes of these objects."},
		{"misses_total", "Pages that the store was asked for and did not have."},
		{"rejected_total", "Objects read from the store that were not what was asked for."},
		{"dropped_total", "Pages that were not saved: no room, or the store failed."},
		{"errors_total", "Calls of the store that failed."},
		{"breaker_open", "Whether the store is not asked because too many calls have failed."},
		{"breaker_opened_total", "How often the breaker has opened."},
		{"call_duration_seconds", "Time that calls of the store took."},
	})
}

// collectStore exports the counters of a store.
func (c *Collector) collectStore(out chan<- prometheus.Metric, s *inspect.StoreStats) {
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"saved_objects_total", s.SavedObjects},
		{"saved_bytes_total", s.SavedBytes},
		{"fetched_objects_total", s.FetchedObjects},
		{"fetched_bytes_total", s.FetchedBytes},
		{"misses_total", s.Misses},
		{"rejected_total", s.Rejected},
		{"dropped_total", s.Dropped},
		{"errors_total", s.Errors},
		{"breaker_opened_total", s.BreakerOpened},
	} {
		c.store.counter(out, x.name, float64(x.n))
	}
	open := 0.0
	if s.BreakerOpen {
		open = 1
	}
	c.store.gauge(out, "breaker_open", open)
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range inspect.StoreLatencyBounds() {
		below += uint64(s.Latency[i])
		buckets[bound.Seconds()] = below
	}
	count := below + uint64(s.Latency[len(s.Latency)-1])
	out <- prometheus.MustNewConstHistogram(c.store["call_duration_seconds"], count, s.CallTime.Seconds(), buckets)
}
