package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages/inspect"
)

// scrape is where one scrape exports the metrics of one prefix. Labels of single metrics are names
// and values in turn.
type scrape struct {
	out      chan<- prometheus.Metric
	prefix   string
	constant prometheus.Labels
}

func (to scrape) gauge(name string, v float64, help string, labels ...string) {
	to.metric(prometheus.GaugeValue, name, v, help, labels)
}

func (to scrape) counter(name string, n int64, help string, labels ...string) {
	to.metric(prometheus.CounterValue, name, float64(n), help, labels)
}

func (to scrape) metric(
	kind prometheus.ValueType, name string, v float64, help string, labels []string,
) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	desc := prometheus.NewDesc(to.prefix+name, help, names, to.constant)
	to.out <- prometheus.MustNewConstMetric(desc, kind, v, values...)
}

// histogram exports counts below bounds in ascending order, and the sum of what was counted.
func (to scrape) histogram(name string, buckets map[float64]uint64, n uint64, sum float64,
	help string) {
	desc := prometheus.NewDesc(to.prefix+name, help, nil, to.constant)
	to.out <- prometheus.MustNewConstHistogram(desc, n, sum, buckets)
}

// tokens exports counts of prompts by their tokens. sum is that of all tokens. bounds says
// which bounds are exported; nil: all.
func (to scrape) tokens(
	name string, counts *inspect.TokenCounts, sum int64, bounds func(int) bool, help string,
) {
	buckets, below := map[float64]uint64{}, uint64(0)
	last := len(counts) - 1
	for i, n := range counts[:last] {
		below += uint64(n)
		if bound := counts.Bound(i); bounds == nil || bounds(bound) {
			buckets[float64(bound)] = below
		}
	}
	to.histogram(name, buckets, below+uint64(counts[last]), float64(sum), help)
}
