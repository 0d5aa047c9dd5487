package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// sideVariable names the side that a process of its own runs, a key of sides.
const sideVariable = "KVACTOR_BENCH_SIDE"

// sides are what a process can run. None ends what it starts: its process ends.
var sides = map[string]func() side{
	"floor": func() side { return newBatch(serve(observedShape().unwatched()), 6).next },
	"watched": func() side {
		return newBatch(serve(observedShape().observed(exporterless())), 6).next
	},
	"published": func() side {
		return newBatch(serve(observedShape().published(exporterless(), pausing)), 6).next
	},
	"unsampled": func() side {
		return newBatch(serve(observedShape().published(unsampling(), pausing)), 6).next
	},
	"polled": func() side {
		return newBatch(serve(observedShape().published(exporterless(), polling)), 6).next
	},
}

// runSide runs a side for the process that has started this one: each line that it reads is a
// number of steps, and each that it writes is their median time in nanoseconds.
func runSide(name string) {
	next := sides[name]()
	for n := 0; ; {
		if _, err := fmt.Scanln(&n); err != nil {
			return // the other process needs no more
		}
		times := make([]time.Duration, n)
		for i := range times {
			times[i] = next()
		}
		slices.Sort(times)
		fmt.Println(times[n/2].Nanoseconds())
	}
}

// process is a side in a process of its own.
type process struct {
	steps io.WriteCloser
	times *bufio.Reader
	cmd   *exec.Cmd
}

func startProcess(ctx context.Context, side string) *process {
	cmd := exec.CommandContext(ctx, must(os.Executable()))
	cmd.Env, cmd.Stderr = append(os.Environ(), sideVariable+"="+side), os.Stderr
	p := &process{steps: must(cmd.StdinPipe()), times: bufio.NewReader(must(cmd.StdoutPipe())),
		cmd: cmd}
	accept(cmd.Start())
	return p
}

// begin starts steps, and median waits for them.
func (p *process) begin(steps int) { must(fmt.Fprintln(p.steps, steps)) }

func (p *process) median() (nanoseconds float64) {
	must(fmt.Fscanln(p.times, &nanoseconds))
	return nanoseconds
}

func (p *process) end() {
	accept(p.steps.Close())
	accept(p.cmd.Wait())
}

// stepsAtATime is how many steps one side makes before it is the turn of the other: 8 ms, so that
// what else the machine does is about the same for both, and the processor's caches are those of
// one side nearly all the time, as in a host that runs one engine.
const stepsAtATime = 40

// apart compares two sides in processes of their own: the median of the quotients of pairs, each
// of which is the median of turns.
//
// Within one process equal sides differ by up to a tenth all the time: memory that the first one
// left, and which of their data meet in the caches, favour one. Here nothing but a side itself
// decides how its memory looks, and each pair is a new draw. Which of two sides is started first,
// and makes the first steps of a turn, alternates.
func apart(b *testing.B, engine, floor string) {
	pairs, turns := 9, 40
	if quick() {
		pairs, turns = 1, 2
	}
	var engines, floors, quotients []float64
	for b.Loop() {
		for range pairs {
			e, f, q := pair(b, engine, floor, turns, len(quotients)%2 == 1)
			engines, floors, quotients = append(engines, e), append(floors, f), append(quotients, q)
		}
	}
	b.ReportMetric(0, "ns/op") // of all processes: says nothing
	b.ReportMetric(middle(engines), "engine-ns")
	b.ReportMetric(middle(floors), "floor-ns")
	b.ReportMetric(middle(quotients), "x/floor") // sorts the quotients
	b.ReportMetric(quotients[0], "x/lowest")
	b.ReportMetric(quotients[len(quotients)-1], "x/highest")
}

// pair starts two processes and returns the medians of their turns and of the quotients.
func pair(
	b *testing.B, engine, floor string, turns int, reverse bool,
) (engineTime, floorTime, quotient float64) {
	names := []string{engine, floor}
	if reverse {
		slices.Reverse(names)
	}
	both := []*process{startProcess(b.Context(), names[0]), startProcess(b.Context(), names[1])}
	for _, p := range both {
		p.begin(scaled(settling))
	}
	for _, p := range both {
		p.median()
	}
	if reverse {
		slices.Reverse(both)
	}
	var times [2][]float64
	var quotients []float64
	for turn := range turns {
		for _, i := range [2]int{turn % 2, 1 - turn%2} {
			both[i].begin(stepsAtATime)
			times[i] = append(times[i], both[i].median())
		}
		quotients = append(quotients, times[0][turn]/times[1][turn])
	}
	for _, p := range both {
		p.end()
	}
	return middle(times[0]), middle(times[1]), middle(quotients)
}

// middle sorts a list and returns its median.
func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
