package bench

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// traffic is a mix of requests at full speed: of eight 4k prompts seven are
// stored already and one is new, and between two of them a running batch does
// four steps.
type traffic struct {
	do    do
	batch *batch
	warm  *calls
	cold  *storing
	turn  int
}

func newTraffic(do do) *traffic {
	r := dice(12)
	t := &traffic{do: do, batch: newBatch(do, 13), cold: newStoring(do, random(r, shortText), 0)}
	t.warm = newCalls(random(r, shortText+1))
	t.warm.store(do)
	return t
}

func (t *traffic) next() {
	if t.turn++; t.turn%8 == 0 {
		t.cold.next()
	} else {
		t.warm.visit(t.do)
	}
	for range 4 {
		t.batch.next()
	}
}

// collector reads what the garbage collector has cost so far.
type collector struct {
	gcSeconds, allSeconds float64
	cycles                uint64
	pauses                *metrics.Float64Histogram
}

func readCollector() collector {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/sched/pauses/total/gc:seconds"},
	}
	metrics.Read(s)
	return collector{
		gcSeconds: s[0].Value.Float64() - s[1].Value.Float64(), allSeconds: s[2].Value.Float64(),
		cycles: s[3].Value.Uint64(), pauses: s[4].Value.Float64Histogram(),
	}
}

// longestPause is the upper bound of the highest bucket that grew since before.
func (c collector) longestPause(before collector) time.Duration {
	for i := len(c.pauses.Counts) - 1; i >= 0; i-- {
		if c.pauses.Counts[i] > before.pauses.Counts[i] {
			return time.Duration(c.pauses.Buckets[i+1] * 1e9)
		}
	}
	return 0
}

// BenchmarkGC runs traffic over millions of resident blocks and reports the
// collector's share of the processors' time, without what it does when no one
// else wants them, and its longest pause. The floor is the same traffic while
// almost nothing is resident: x/floor is what the resident blocks cost.
func BenchmarkGC(b *testing.B) {
	blocks, run := scaled(4_000_000), 3*time.Second
	if large() {
		blocks = 10_000_000
	}
	if quick() {
		run /= 10
	}
	for b.Loop() {
		floor, _ := runTraffic(b, 0, run)
		engine, pause := runTraffic(b, blocks, run)
		b.ReportMetric(engine.share*100, "gc-%")
		b.ReportMetric(floor.share*100, "floor-gc-%")
		b.ReportMetric(engine.turn/floor.turn, "x/floor")
		b.ReportMetric(engine.cycles, "gc-cycles")
		b.ReportMetric(engine.cycleMillis, "ms-cpu/cycle")
		b.ReportMetric(float64(pause.Nanoseconds()), "max-pause-ns")
	}
	b.ReportMetric(0, "ns/op")
}

// load is what traffic has cost.
type load struct {
	share       float64 // of the processors' time that the collector took
	turn        float64 // nanoseconds
	cycles      float64
	cycleMillis float64
}

func runTraffic(b *testing.B, blocks int, run time.Duration) (load, time.Duration) {
	e, stop := hybrid(blocks + batchSequences*(4096+2*batchSteps)/tokensPerBlock).spawn()
	defer stop()
	engine := serve(e)
	fill(engine, blocks, shortText, messages.Ticket{})
	t := newTraffic(engine)
	runtime.GC()
	before, start, turns := readCollector(), time.Now(), 0
	for time.Since(start) < run {
		t.next()
		turns++
	}
	took := time.Since(start)
	runtime.GC() // at least one cycle under all that is resident, and fresh numbers
	after := readCollector()
	gc, cycles := after.gcSeconds-before.gcSeconds, float64(after.cycles-before.cycles)
	engine(&inspect.ReadStats{})
	return load{
		share:  gc / (after.allSeconds - before.allSeconds),
		turn:   float64(took.Nanoseconds()) / float64(turns),
		cycles: cycles, cycleMillis: 1e3 * gc / cycles,
	}, after.longestPause(before)
}
