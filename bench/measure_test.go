package bench

import (
	"flag"
	"math"
	"os"
	"slices"
	"testing"
	"time"
)

// quick tells a run that only asks whether the benchmarks still work.
func quick() bool {
	f := flag.Lookup("test.benchtime")
	return testing.Short() || f != nil && f.Value.String() == "1x"
}

// large tells a run that has the time and memory for the largest set-ups.
func large() bool { return os.Getenv("KVACTOR_BENCH") == "large" }

// scaled is a size for a full run, a tenth of it for a quick one.
func scaled(n int) int {
	if quick() {
		return n / 10
	}
	return n
}

// side does its work once and tells how long the part took that counts.
type side func() time.Duration

// timed counts all of f.
func timed(f func()) side {
	return func() time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
}

// batched counts all of f, n times: for work that is short against the clock's
// own cost.
func batched(n int, f func()) side {
	return func() time.Duration {
		start := time.Now()
		for range n {
			f()
		}
		return time.Since(start) / time.Duration(n)
	}
}

// samples keeps the last times; a run that takes more drops the oldest.
type samples struct {
	times []time.Duration
	at    int
}

// maxSamples is a megabyte a side, and enough for a 99th percentile.
const maxSamples = 1 << 17

func newSamples() samples { return samples{times: make([]time.Duration, 0, maxSamples)} }

func (s *samples) add(d time.Duration) {
	if len(s.times) < cap(s.times) {
		s.times = append(s.times, d)
		return
	}
	s.times[s.at] = d
	s.at = (s.at + 1) % len(s.times)
}

// quantile sorts the samples and picks one; q in [0, 1].
func (s *samples) quantile(q float64) float64 {
	slices.Sort(s.times)
	s.at = 0
	return float64(s.times[min(len(s.times)-1, int(q*float64(len(s.times))))])
}

// comparison is the outcome of the two sides.
type comparison struct{ engine, floor samples }

// warmups is how often each side runs before it counts, so that records and
// buffers have grown.
const warmups = 3

// versus runs engine and floor by turns for the time of the benchmark and
// reports their medians and the quotient.
func versus(b *testing.B, engine, floor side) *comparison {
	c := &comparison{newSamples(), newSamples()}
	for range warmups {
		engine()
		floor()
	}
	b.ReportAllocs()
	first := false
	for b.Loop() {
		if first = !first; first {
			c.engine.add(engine())
			c.floor.add(floor())
		} else {
			c.floor.add(floor())
			c.engine.add(engine())
		}
	}
	c.report(b)
	return c
}

// crossing is the order in which crossed makes its sides: true for an engine. Neither kind is
// made earlier than the other on average, nor more at the ends than in the middle.
var crossing = [...]bool{true, false, false, true, false, true, true, false}

// crossed runs four engines and four floors by turns, which make makes, with what is measured and
// without. Equal sides in one process differ by up to a tenth all the time, depending on the memory
// that they got: four of each leave some hundredths of that, which a row with nothing to measure
// shows. It reports the medians of both kinds, and that of the quotients of all rounds: what else
// the machine does changes from round to round, but less within one.
func crossed(b *testing.B, make func(measured bool) side, settle int) {
	var sides [len(crossing)]side
	for i, measured := range crossing {
		sides[i] = make(measured)
	}
	for range settle {
		for _, next := range sides {
			next()
		}
	}
	// The quotient is kept in billionths.
	engine, floor, quotient := newSamples(), newSamples(), newSamples()
	b.ReportAllocs()
	first := 0
	for b.Loop() {
		above, below := 0.0, 0.0 // sums of logarithms
		for k := range sides {
			i := (first + k) % len(sides)
			took := math.Log(float64(max(1, sides[i]())))
			if crossing[i] {
				above += took
			} else {
				below += took
			}
		}
		first++
		above, below = math.Exp(above/(float64(len(sides))/2)), math.Exp(below/(float64(len(sides))/2))
		engine.add(time.Duration(above))
		floor.add(time.Duration(below))
		quotient.add(time.Duration(above / below * float64(time.Second)))
	}
	b.ReportMetric(0, "ns/op") // of all sides together: says nothing
	b.ReportMetric(engine.quantile(0.5), "engine-ns")
	b.ReportMetric(floor.quantile(0.5), "floor-ns")
	b.ReportMetric(quotient.quantile(0.5)/float64(time.Second), "x/floor")
}

func (c *comparison) report(b *testing.B) {
	engine, floor := c.engine.quantile(0.5), c.floor.quantile(0.5)
	b.ReportMetric(0, "ns/op") // of both sides together: says nothing
	b.ReportMetric(engine, "engine-ns")
	b.ReportMetric(floor, "floor-ns")
	b.ReportMetric(engine/max(1, floor), "x/floor")
}

// tail reports the engine's 99th percentile.
func (c *comparison) tail(b *testing.B) { b.ReportMetric(c.engine.quantile(0.99), "p99-ns") }
