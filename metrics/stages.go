package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// stages are the metrics of what ObserveStages is told.
type stages struct{ durations *prometheus.HistogramVec }

// stageBuckets are in seconds, as those of calls: a stage takes from 100 ns to the time for
// which an admission waits for pages.
var stageBuckets = []float64{1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1, 10}

func newStages(constant prometheus.Labels) stages {
	return stages{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kvactor_stage_duration_seconds", Help: "Time that a call was in a stage of its way through the engine.", ConstLabels: constant,
		Buckets: stageBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, []string{"call", "stage"})}
}

// ObserveStages notes for how long a call was in each stage: queue, match, wait for pages,
// take, move and apply. It is made for actors.WithStageObserver, beside Observe.
func (c *Collector) ObserveStages(_ context.Context, request messages.Request, marks []inspect.StageMark, _ error) {
	ended := time.Now()
	call, _ := callOf(request)
	for i, m := range marks {
		to := ended
		if i+1 < len(marks) {
			to = marks[i+1].Began
		}
		c.stages.durations.WithLabelValues(call, string(m.Stage)).Observe(to.Sub(m.Began).Seconds())
	}
}
