package survival_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// What an overload is: pages for capacity sequences, and demand for ten times as
// many. A sequence has a prompt of promptBlocks and grows to twice that.
const (
	capacity     = 16
	demand       = 10 * capacity
	promptBlocks = 8
	pageCount    = 2 * promptBlocks * capacity
)

// What must hold of a long run. Of a short one only what no clock says is asked.
const (
	// heapLimit is what an overload may hold more than calm: 4 MiB were seen in five
	// minutes, most of them samples and what was once queued on the device.
	heapLimit = 16 << 20
	// growthLimit is what its second half may hold more than its first.
	growthLimit   = 4 << 20
	recoveryLimit = time.Second
	shortPhase    = 120 * time.Millisecond
)

// phaseLength is how long an overload lasts, and whether time is asserted.
func phaseLength(t *testing.T) (length time.Duration, strict bool) {
	text := os.Getenv("KVACTOR_OVERLOAD")
	if text == "" {
		return shortPhase, false
	}
	length, err := time.ParseDuration(text)
	require.NoError(t, err)
	return length, true
}

// kind is one kind of call that is timed.
type kind int

const (
	admitted kind = iota
	turnedAway
	appended
	released
	kinds
)

var kindNames = [kinds]string{"admit, served", "admit, refused", "append", "release"}

// samples are of the last few hundred calls of each kind by one host: as many in an hour as
// in a second.
type samples struct {
	kept  [kinds][]time.Duration
	count [kinds]int
}

const samplesKept = 512

func (s *samples) add(k kind, d time.Duration) {
	if len(s.kept[k]) < samplesKept {
		s.kept[k] = append(s.kept[k], d)
	} else {
		s.kept[k][s.count[k]%samplesKept] = d
	}
	s.count[k]++
}

// crowd is a number of hosts that want more than there is.
type crowd struct {
	*rig
	workers    int
	stop       atomic.Bool
	tokens     atomic.Int64 // computed
	finished   atomic.Int64 // sequences that came to their end
	preempts   atomic.Int64 // sequences that gave way, to come again
	refused    sync.Map     // messages.Code: *atomic.Int64
	unexpected atomic.Pointer[error]
	held       [parts]uint64 // the most bytes of the heap that were live, by part of the time
	samples    []samples
	elapsed    time.Duration

	mu      sync.Mutex
	running []messages.SequenceID // in the order of their admission
}

// join notes a running sequence.
func (c *crowd) join(id messages.SequenceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = append(c.running, id)
}

func (c *crowd) leave(id messages.SequenceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.running, id)
	c.running = slices.Delete(c.running, i, i+1)
}

// oldest tells whether a sequence is one of the oldest, which the pages are
// enough for: it tries again, all others give way. So some always come to an end.
func (c *crowd) oldest(id messages.SequenceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Index(c.running, id) < capacity
}

// run starts the crowd for a while and waits until each has released everything.
func (c *crowd) run(length time.Duration) {
	c.samples = make([]samples, c.workers)
	start := time.Now()
	var hosts, watch sync.WaitGroup
	for i := range c.workers {
		hosts.Go(func() { c.host(i) })
	}
	done := make(chan struct{})
	watch.Go(func() { c.watch(length, done) })
	time.Sleep(length)
	c.elapsed = time.Since(start)
	c.stop.Store(true)
	hosts.Wait()
	close(done)
	watch.Wait()
}

// parts are how many pieces of a run the memory is noted of.
const parts = 10

// watch notes the most memory that is held, as of the last collection: garbage
// that waits for the next one is as much again, and says nothing of the engine.
// The device's time passes as the clock's does; by itself it stands still while
// no one waits for a copy, and what is queued piles up.
func (c *crowd) watch(length time.Duration, done chan struct{}) {
	held := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	start := time.Now()
	for last := start; ; {
		metrics.Read(held)
		part := min(int(parts*time.Since(start)/length), parts-1)
		c.held[part] = max(c.held[part], held[0].Value.Uint64())
		now := time.Now()
		c.device.Advance(now.Sub(last))
		last = now
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// typed counts a refusal by its code; what is none is a failure of the test.
func (c *crowd) typed(err error) {
	var refusal *messages.Refusal
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		refusal = &messages.Refusal{Code: "deadline"}
	case !errors.As(err, &refusal) || !errors.Is(err, messages.ErrOutOfPages) &&
		!errors.Is(err, messages.ErrBusy):
		c.unexpected.Store(&err)
		return
	}
	n, _ := c.refused.LoadOrStore(refusal.Code, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// host starts one sequence after the other. However slow the machine, the crowd
// goes on until one has come to its end.
func (c *crowd) host(i int) {
	random := rand.New(rand.NewPCG(uint64(i), 11))
	for (!c.stop.Load() || c.finished.Load() == 0) && c.unexpected.Load() == nil {
		// Some prompts are popular, and all of them begin in one of a few ways.
		q := prompt(1<<16*random.IntN(4), promptBlocks*tpb)
		if random.IntN(4) > 0 {
			copy(q.Tokens[2*tpb:], run(random.IntN(1<<20), len(q.Tokens)))
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		start := time.Now()
		a, err := c.Admit(short, q)
		cancel()
		if err != nil {
			c.samples[i].add(turnedAway, time.Since(start))
			c.typed(err)
			time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
			continue
		}
		c.samples[i].add(admitted, time.Since(start))
		c.runSequence(i, &a, random)
	}
}

// runSequence computes a sequence to its end, or until it must give way.
func (c *crowd) runSequence(i int, a *messages.Admitted, random *rand.Rand) {
	id := a.Sequence
	c.join(id)
	defer c.leave(id)
	length, whole := promptBlocks*tpb, true
	for _, end := range append(slices.Clone(a.Checkpoints), length) {
		whole = whole && c.step(func() ([]messages.StepResult, error) {
			return c.Commit(ctx, []messages.CommitStep{{Sequence: id, Computed: end}})
		}, &c.samples[i], kinds)
	}
	c.tokens.Add(int64(length))
	for n := 0; whole && n < promptBlocks*tpb; {
		whole = c.step(func() ([]messages.StepResult, error) {
			return c.Append(ctx,
				[]messages.AppendStep{{Sequence: id,
					Tokens: []messages.Token{messages.Token(random.IntN(1 << 20))}, Computed: length + 1}})
		}, &c.samples[i], appended)
		if whole {
			length, n = length+1, n+1
			c.tokens.Add(1)
			continue
		}
		if whole = c.oldest(id); whole { // those who came later give way
			time.Sleep(time.Duration(50+random.IntN(50)) * time.Microsecond)
		}
	}
	if whole {
		c.finished.Add(1)
	} else {
		c.preempts.Add(1)
	}
	for !c.step(func() ([]messages.StepResult, error) {
		return c.Release(ctx, []messages.ReleaseStep{{Sequence: id}})
	}, &c.samples[i], released) && c.unexpected.Load() == nil {
		runtime.Gosched()
	}
}

// step does one step of a sequence, some times if there is no room for the call;
// false if it was refused.
func (c *crowd) step(do func() ([]messages.StepResult, error), s *samples, k kind) bool {
	for {
		start := time.Now()
		results, err := do()
		if err == nil {
			err = results[0].Err
		}
		if err == nil {
			if k < kinds {
				s.add(k, time.Since(start))
			}
			return true
		}
		c.typed(err)
		if !errors.Is(err, messages.ErrBusy) {
			return false
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// rate is tokens a second.
func (c *crowd) rate() float64 { return float64(c.tokens.Load()) / c.elapsed.Seconds() }

// report draws what happened.
func (c *crowd) report(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d hosts, %d pages, %v\n", name, c.workers, pageCount,
		c.elapsed.Round(time.Millisecond))
	fmt.Fprintf(&b,
		"  %.0f tokens/s, %d sequences finished, %d gave way\n  live heap in MiB, by tenths of the time:",
		c.rate(), c.finished.Load(), c.preempts.Load())
	for _, bytes := range c.held {
		fmt.Fprintf(&b, " %.1f", float64(bytes)/(1<<20))
	}
	b.WriteByte('\n')
	c.refused.Range(func(code, n any) bool {
		fmt.Fprintf(&b, "  refused with %s: %d\n", code, n.(*atomic.Int64).Load())
		return true
	})
	for k := range kinds {
		var all []time.Duration
		for i := range c.samples {
			all = append(all, c.samples[i].kept[k]...)
		}
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		at := func(p float64) time.Duration {
			return all[int(p*float64(len(all)-1))].Round(time.Microsecond)
		}
		fmt.Fprintf(&b, "  %-15s p50 %-9v p90 %-9v p99 %-9v p99.9 %-9v max %v\n", kindNames[k], at(.5),
			at(.9), at(.99), at(.999), at(1))
	}
	return b.String()
}

// Ten times the demand that there are pages for: every refusal is typed, memory
// is bounded, and afterwards everything is as at first.
func TestOverload(t *testing.T) {
	for _, o := range []struct {
		name    string
		states  bool
		options []actors.Option
	}{
		{"refused at once", false, nil},
		{"a waiting room", false, []actors.Option{actors.WithWaitingRoom(demand)}},
		{"a small waiting room", false, []actors.Option{actors.WithWaitingRoom(capacity)}},
		{"few calls in flight", false, []actors.Option{actors.WithMaxInFlight(2 * capacity),
			actors.WithBusyRefusal()}},
		{"few states", true, nil},
		{"few states and a waiting room", true, []actors.Option{actors.WithWaitingRoom(demand)}},
	} {
		t.Run(o.name, func(t *testing.T) { overload(t, o.states, o.options) })
	}
}

func overload(t *testing.T, states bool, options []actors.Option) {
	length, strict := phaseLength(t)
	pages := []windows.PageCounts{{Primary: pageCount, Secondary: pageCount / 2}}
	if states { // of which a running sequence has one, and checkpoints what is left
		pages = append(pages, windows.PageCounts{Primary: capacity + 4, Secondary: capacity / 2})
	}
	r := newRig(t, setup{pages: pages, states: states, change: func(c *windows.Config) {
		c.EventBufferMaxSize = 1000 // that no one reads
	}}, options...)
	before := r.picture()
	calm := &crowd{rig: r, workers: capacity / 2}
	calm.run(max(length/10, shortPhase))
	t.Log(calm.report("calm"))
	storm := &crowd{rig: r, workers: demand}
	storm.run(length)
	t.Log(storm.report("overload"))
	start := time.Now()
	r.checkRestored(before)
	recovery := time.Since(start)
	after := &crowd{rig: r, workers: capacity / 2}
	after.run(max(length/10, shortPhase))
	t.Log(after.report("afterwards"))
	t.Logf("recovered in %v", recovery)
	for _, c := range []*crowd{calm, storm, after} {
		if err := c.unexpected.Load(); err != nil {
			t.Errorf("a call was answered with %v", *err)
		}
		assert.NotZero(t, c.finished.Load())
	}
	if strict {
		assert.GreaterOrEqual(t, storm.rate(), max(calm.rate(), after.rate())/2)
		assert.LessOrEqual(t, slices.Max(storm.held[:]), slices.Max(calm.held[:])+heapLimit)
		assert.LessOrEqual(t, slices.Max(storm.held[parts/2:]),
			slices.Max(storm.held[:parts/2])+growthLimit)
		assert.LessOrEqual(t, recovery, recoveryLimit)
	}
	r.checkRestored(before)
	r.close()
}

// picture is what shows of an engine at rest.
type picture struct {
	Sequences int
	Used      []int
	Total     []int
}

func (r *rig) picture() picture {
	stats, err := r.Stats(ctx)
	require.NoError(r.t, err)
	p := picture{Sequences: stats.Sequences}
	for _, s := range stats.Pools {
		p.Used = append(p.Used, s.Primary.Used)
		p.Total = append(p.Total, s.Primary.Total)
	}
	return p
}

// checkRestored fails unless the engine is as at first, and takes all pages.
func (r *rig) checkRestored(before picture) {
	r.t.Helper()
	assert.Equal(r.t, before, r.picture())
	require.NoError(r.t, r.Check(ctx))
	a := r.admit(prompt(1<<19, pageCount*tpb))
	r.release(a.Sequence)
}
