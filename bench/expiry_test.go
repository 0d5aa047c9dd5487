package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
)

// BenchmarkExpiry expires a million timed blocks under a sequence that goes
// on, a token a step. Spread, the blocks of one 4k prompt expire at a time, as
// prompts come; at once, all have the same moment, and one step must see all of
// them expired. The floor is a step without expiries, of which there are as many;
// max-step-ns is the slowest step, and floor-max-step-ns that of the floor: on a
// machine that others use it is the length of their time slices.
func BenchmarkExpiry(b *testing.B) {
	b.Run("spread", func(b *testing.B) { benchExpiry(b, time.Second) })
	b.Run("at once", func(b *testing.B) { benchExpiry(b, 0) })
}

// aging is an engine whose blocks expire, an interval after one another.
type aging struct {
	do     do
	stop   func()
	now    *atomic.Int64
	step   messages.Append
	length int
}

const aged = time.Hour

func newAging(prompts int, apart time.Duration) *aging {
	a := &aging{now: new(atomic.Int64)}
	s := full(prompts*shortText/tokensPerBlock + 1<<16)
	s.clock = func() time.Duration { return time.Duration(a.now.Load()) }
	var e *actors.Engine
	e, a.stop = s.spawn()
	a.do = serve(e)
	r := dice(11)
	for i := range prompts {
		calls := newCalls(random(r, shortText))
		duration := aged + time.Duration(i)*apart
		calls.admit.Requests[0].Retention = &messages.Retention{Ranges: []messages.RetentionRange{
			{End: messages.EndOfPrompt, Priority: 80, Duration: duration},
		}}
		calls.store(a.do)
	}
	calls := newCalls(random(r, shortText))
	a.do(&calls.admit)
	accept(calls.admit.Results[0].Err)
	id := calls.admit.Results[0].Sequence
	calls.commit.Steps[0] = messages.CommitStep{Sequence: id, Computed: shortText}
	a.do(&calls.commit)
	accept(calls.commit.Results[0].Err)
	a.length = shortText
	a.step.Steps = []messages.AppendStep{{Sequence: id, Tokens: make([]messages.Token, 1)}}
	return a
}

// next is one step of the sequence.
func (a *aging) next() time.Duration {
	s := &a.step.Steps[0]
	s.Tokens[0], s.Computed = messages.Token(a.length%vocabulary), a.length
	a.length++
	start := time.Now()
	a.do(&a.step)
	took := time.Since(start)
	accept(a.step.Results[0].Err)
	return took
}

func benchExpiry(b *testing.B, apart time.Duration) {
	prompts := scaled(1_000_000) * tokensPerBlock / shortText
	expiring, plain := newSamples(), newSamples()
	slowest, slowestPlain := time.Duration(0), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() { // a loop is mostly setting up
		a := newAging(prompts, apart)
		steps := prompts
		if apart == 0 {
			steps = 1
		}
		for range max(steps, 100) {
			took := a.next()
			plain.add(took)
			slowestPlain = max(slowestPlain, took)
		}
		a.now.Store(int64(aged) - int64(time.Second))
		for range steps {
			a.now.Add(int64(time.Second))
			took := a.next()
			expiring.add(took)
			slowest = max(slowest, took)
		}
		a.stop()
	}
	c := comparison{expiring, plain}
	c.report(b)
	c.tail(b)
	b.ReportMetric(float64(slowest.Nanoseconds()), "max-step-ns")
	b.ReportMetric(float64(slowestPlain.Nanoseconds()), "floor-max-step-ns")
}
