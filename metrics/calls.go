package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	names "github.com/kvactor/kvactor/internal/calls"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// calls are the metrics of what is observed.
type calls struct {
	durations  *prometheus.HistogramVec
	refusals   *prometheus.CounterVec
	admissions *prometheus.CounterVec

	byCall   map[string]prometheus.Observer
	admitted prometheus.Counter // the one of admissions that nearly all answers count
	pending  pending[callTime]
}

// callTime is how long a call took.
type callTime struct {
	call    string
	seconds float64
}

// callNames are the calls of an engine that have a duration of their own.
var callNames = []string{
	"admit", "append", "commit", "release", "rewind", "fork", "tables", "lookup", "pin", "unpin",
	"invalidate", "prefetch",
	"reset", "rebalance", "stats", "overview", "events", "write_scales", "read_scales", "fetch",
	"export",
	"import", "check", "other",
}

func newCalls(constant prometheus.Labels) *calls {
	c := &calls{
		// Calls take from 1 µs to some ms; the default buckets begin at 5 ms.
		durations: durations("kvactor_call_duration_seconds", "Time from a call to its answer.", constant,
			[]float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1}, "call"),
		refusals: counters("kvactor_call_refusals_total",
			"Calls that were refused as a whole, by the code of the refusal. Each try counts.",
			constant, "code"),
		admissions: counters("kvactor_admissions_total",
			"Requests for admission, by the answer: admitted, or the code of the refusal. Each try and "+
				"each readmission counts.",
			constant, "answer"),
		byCall: map[string]prometheus.Observer{},
	}
	for _, name := range callNames {
		c.byCall[name] = c.durations.WithLabelValues(name)
	}
	c.admitted = c.admissions.WithLabelValues("admitted")
	c.pending.enter = func(x callTime) { c.byCall[x.call].Observe(x.seconds) }
	c.begin()
	return c
}

// durations makes histograms of seconds. A server that reads native histograms gets them with an
// error below 10 %.
func durations(
	name, help string, constant prometheus.Labels, buckets []float64, labels ...string,
) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: constant, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
}

// counters makes counters with labels.
func counters(
	name, help string, constant prometheus.Labels, labels ...string,
) *prometheus.CounterVec {
	return prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: constant}, labels)
}

// begin exports counters from 0 on: a rate that begins with the first increase misses it.
func (c *calls) begin() {
	for _, code := range []messages.Code{
		messages.ErrBadRequest, messages.ErrUnknownSequence, messages.ErrOutOfPages, messages.ErrTooLong,
		messages.ErrNotSupported, messages.ErrSequenceLost,
		messages.ErrBusy, messages.ErrInternal,
	} {
		c.refusals.WithLabelValues(string(code))
	}
	for _, answer := range []string{"admitted", string(messages.ErrBadRequest),
		string(messages.ErrOutOfPages), string(messages.ErrTooLong), string(messages.ErrBusy)} {
		c.admissions.WithLabelValues(answer)
	}
}

// Collect exports the metrics.
func (c *calls) Collect(out chan<- prometheus.Metric) {
	c.pending.enterAll()
	for _, x := range []prometheus.Collector{c.durations, c.refusals, c.admissions} {
		x.Collect(out)
	}
}

// Observe notes a call and its answer. It is made for actors.WithCallObserver.
func (c *Collector) Observe(
	_ context.Context, request messages.Request, began time.Time, err error,
) {
	took := time.Since(began).Seconds()
	name, refusal := names.Name(request)
	c.calls.pending.add(callTime{name, took})
	if err == nil {
		err = refusal
	}
	admission, _ := request.(*messages.Admit)
	if err != nil {
		code := codeOf(err)
		c.calls.refusals.WithLabelValues(code).Inc()
		if admission != nil {
			c.calls.admissions.WithLabelValues(code).Add(float64(len(admission.Requests)))
		}
		return
	}
	if admission == nil {
		return
	}
	admitted := 0
	for i := range admission.Results {
		if err := admission.Results[i].Err; err != nil {
			c.calls.admissions.WithLabelValues(codeOf(err)).Inc()
		} else {
			admitted++
		}
	}
	c.calls.admitted.Add(float64(admitted))
}

// codeOf is the code of a refusal, or what ended a call instead.
func codeOf(err error) string {
	var refusal *messages.Refusal
	var code messages.Code
	switch {
	case errors.As(err, &refusal):
		return string(refusal.Code)
	case errors.As(err, &code):
		return string(code)
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	default:
		return "other"
	}
}

// stages are the metrics of what ObserveStages is told.
type stages struct {
	durations *prometheus.HistogramVec
	pending   pending[stageTime]
}

// stageTime is how long a call was in a stage.
type stageTime struct {
	call    string
	stage   inspect.Stage
	seconds float64
}

// stageBuckets are in seconds, as those of calls: a stage takes from 100 ns to the time for
// which an admission waits for pages.
var stageBuckets = []float64{1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
	1e-3, 1e-2, 1e-1, 1, 10}

func newStages(constant prometheus.Labels) *stages {
	s := &stages{durations: durations("kvactor_stage_duration_seconds",
		"Time that a call was in a stage of its way through the engine.", constant, stageBuckets,
		"call", "stage")}
	s.pending.enter = func(x stageTime) {
		s.durations.WithLabelValues(x.call, string(x.stage)).Observe(x.seconds)
	}
	return s
}

// Collect exports the metrics.
func (s *stages) Collect(out chan<- prometheus.Metric) {
	s.pending.enterAll()
	s.durations.Collect(out)
}

// ObserveStages notes for how long a call was in each stage: queue, match, wait for pages,
// take, move and apply. It is made for actors.WithStageObserver, beside Observe.
func (c *Collector) ObserveStages(
	_ context.Context, request messages.Request, marks []inspect.StageMark, _ error,
) {
	ended := time.Now()
	call, _ := names.Name(request)
	for i, m := range marks {
		to := ended
		if i+1 < len(marks) {
			to = marks[i+1].Began
		}
		c.stages.pending.add(stageTime{call, m.Stage, to.Sub(m.Began).Seconds()})
	}
}
