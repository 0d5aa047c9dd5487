package bench

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A chat is a service of many users who come back again and again with all that
// was said so far. The device holds a part of their contexts, host memory the
// rest. Time is the simulated device's.
//
// Pages are 1/512 of real ones, 2 MiB, and so is the link: a page takes as long.
type chat struct {
	users    int
	turns    int           // of all users together
	think    time.Duration // between the turns of one user, on average
	pages    windows.PageCounts
	windows  []int
	off      bool    // offload_ahead
	chunk    int     // tokens of a prompt computed at once; 0: all
	sequence int     // at most so many at once
	document int     // tokens of the longest first prompt
	slower   float64 // the link, than a real one; 0: as it is
	seed     uint64
}

const (
	chatBlock   = 16
	chatStep    = 12 * time.Millisecond // one token of everybody
	chatPrefill = 60 * time.Microsecond // a token of a prompt
	chatLongest = 6000                  // tokens of a context; then the user starts again
)

// chatLink is the profile h200-pcie5 for pages that are 512 times as small.
func chatLink(slower float64) *sim.Profile {
	p := must(sim.NamedProfile(sim.DefaultProfile))
	scale := 512 * slower
	for _, lane := range []*sim.Lane{&p.Onboard, &p.Offload} {
		lane.SmallBelow = 0
		lane.GBps, lane.Large.GBps = lane.GBps/scale, lane.Large.GBps/scale
	}
	p.Name, p.BothGBps, p.HBMGBps = "h200-pcie5 at 1/512", p.BothGBps/scale, p.HBMGBps/scale
	return &p
}

// chatRun is a running chat.
type chatRun struct {
	chat
	device  *sim.Device
	engine  *actors.Engine
	compute gpu.Stream
	dice    *rand.Rand
	users   []chatUser
	active  []*chatUser
	done    int
	refused int
	waits   samples // of admissions, until their pages are ready, in device time
}

// chatUser is one user: with a sequence while an answer is being written.
type chatUser struct {
	history []messages.Token
	due     time.Duration
	id      messages.SequenceID
	left    int  // tokens of the answer
	asking  bool // history ends with a prompt that has not been admitted
	running bool
	last    gpu.Ticket
}

func newChatRun(tb testing.TB, c chat) *chatRun {
	h := &chatRun{chat: c, dice: dice(c.seed), users: make([]chatUser, c.users), waits: newSamples()}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.OffloadAhead, cache.MaxAttentionWindow = chatBlock, !c.off, c.windows
	model := windows.Model{Layers: max(1, len(c.windows)), KVHeads: []int{1}, HeadDim: 64,
		DType: windows.Float16, MaxSeqLen: chatLongest + 2000}
	pages := make([]windows.PageCounts, model.Layers)
	for i := range pages {
		pages[i] = c.pages
	}
	var err error
	h.device, err = sim.New(sim.Config{MemoryBytes: 1 << 32, Measured: chatLink(cmp.Or(c.slower, 1)),
		Poison: sim.PoisonOff})
	require.NoError(tb, err)
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	h.engine, err = actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Pages: pages,
		Device: h.device}, actors.WithClock(h.device.Now))
	require.NoError(tb, err)
	tb.Cleanup(func() {
		h.device.Drain()
		must(h.engine.Close(context.Background()))
		accept(h.device.Close())
		system.Shutdown()
	})
	h.compute = must(h.device.NewStream("compute"))
	for i := range h.users {
		h.users[i].due = time.Duration(h.dice.Int64N(int64(c.think)))
	}
	return h
}

// run serves all turns.
func (h *chatRun) run() {
	for h.done < h.turns {
		now := h.device.Now()
		idle := true
		for i := range h.users {
			u := &h.users[i]
			if !u.running && u.due <= now && len(h.active) < h.sequence {
				idle = !h.arrive(u) && idle
			}
		}
		if len(h.active) > 0 {
			h.step()
			idle = false
		}
		if idle {
			h.device.Advance(chatStep)
		}
	}
}

// kernel runs for a time after tickets, and is waited for.
func (h *chatRun) kernel(nanos time.Duration, waits []gpu.Ticket) gpu.Ticket {
	return must(h.device.Launch(h.compute, gpu.Kernel{Waits: waits, Nanos: int64(nanos)}))
}

// arrive admits a user's next turn and computes it.
func (h *chatRun) arrive(u *chatUser) bool {
	ctx := context.Background()
	switch {
	case u.asking:
	case len(u.history) == 0:
		u.history = random(h.dice, h.document/6+h.dice.IntN(h.document))
	default:
		u.history = append(u.history, random(h.dice, 20+h.dice.IntN(300))...)
	}
	a, err := h.engine.Admit(ctx, messages.AdmitRequest{Tokens: u.history, ChunkTokens: h.chunk})
	if u.asking = err != nil; u.asking {
		h.refused++
		u.due = h.device.Now() + chatStep
		return false
	}
	asked := h.device.Now()
	for _, t := range a.Ready {
		if t.Stream != h.compute {
			accept(h.device.Sync(ctx, t))
		}
	}
	h.waits.add(h.device.Now() - asked)
	u.id, u.running, u.left = a.Sequence, true, 30+h.dice.IntN(150)
	h.prefill(u, a.ReusedTokens, a.Ready)
	h.active = append(h.active, u)
	return true
}

// prefill computes a prompt in its chunks.
func (h *chatRun) prefill(u *chatUser, computed int, ready []gpu.Ticket) {
	for prompt := len(u.history); computed < prompt; {
		end := prompt
		if reach := (computed + h.chunk) / chatBlock * chatBlock; h.chunk > 0 && reach < prompt {
			end = reach
		}
		u.last = h.kernel(time.Duration(end-computed)*chatPrefill, ready)
		steps := must(
			h.engine.Commit(context.Background(),
				[]messages.CommitStep{{Sequence: u.id, Computed: end, After: u.last}}))
		accept(h.device.Sync(context.Background(), u.last))
		computed, ready = end, steps[0].Ready
	}
}

// step gives everybody a token.
func (h *chatRun) step() {
	ctx := context.Background()
	steps := make([]messages.AppendStep, len(h.active))
	for i, u := range h.active {
		steps[i] = messages.AppendStep{Sequence: u.id, Tokens: random(h.dice, 1)}
	}
	results := must(h.engine.Append(ctx, steps))
	var waits []gpu.Ticket
	var commits []messages.CommitStep
	kept := h.active[:0]
	var ended []messages.ReleaseStep
	for i, u := range h.active {
		if results[i].Err != nil { // no page: the answer ends here
			u.left = 0
		} else {
			u.history = append(u.history, steps[i].Tokens...)
			u.left--
			waits = append(waits, results[i].Ready...)
			commits = append(commits, messages.CommitStep{Sequence: u.id, Computed: len(u.history)})
		}
	}
	last := h.kernel(chatStep, waits)
	for i := range commits {
		commits[i].After = last
	}
	must(h.engine.Commit(ctx, commits))
	for _, u := range h.active {
		if u.left > 0 {
			kept = append(kept, u)
			continue
		}
		ended = append(ended, messages.ReleaseStep{Sequence: u.id, After: last})
		h.leave(u)
	}
	h.active = kept
	if len(ended) > 0 {
		must(h.engine.Release(ctx, ended))
	}
	accept(h.device.Sync(ctx, last))
}

// leave waits while a user reads the answer.
func (h *chatRun) leave(u *chatUser) {
	h.done++
	u.running = false
	u.due = h.device.Now() + time.Duration(h.dice.ExpFloat64()*float64(h.think))
	if len(u.history) > chatLongest {
		u.history = nil
	}
}

// chatOutcome is what a chat has shown.
type chatOutcome struct {
	taken, evicted, offloaded, dirty, waiting, ahead, onboarded int64
	reused                                                      float64
	// part of the time in which the link to the host was busy
	link float64
	// pages copied in one descriptor, out and in
	perPiece [2]float64
	p99      time.Duration
	refused  int
}

func (h *chatRun) outcome() (o chatOutcome) {
	stats := must(h.engine.Stats(context.Background()))
	for _, p := range stats.Pools {
		o.taken += p.AllocatedPages
		o.evicted += p.Evicted
		o.offloaded += p.Offloaded
		o.dirty += p.DirtyTakes
		o.waiting += p.WaitingTakes
		o.ahead += p.AheadPages
		o.onboarded += p.Onboarded
	}
	o.reused = float64(stats.ReusedTokens) / float64(stats.PromptTokens)
	o.link = h.device.Busy()[gpu.Offload]
	for way := range o.perPiece {
		traffic := h.device.Counters().Directions[way]
		o.perPiece[way] = float64(traffic.Copies) / float64(max(1, traffic.Descriptors))
	}
	o.p99, o.refused = time.Duration(h.waits.quantile(0.99)), h.refused
	return o
}

// share is the part of the takes of pages with contents to copy that waited for
// the copy.
func (o chatOutcome) share() float64 { return float64(o.waiting) / float64(max(1, o.dirty)) }

func (o chatOutcome) String() string {
	return fmt.Sprintf(
		"%d pages taken, %d evicted, %d offloaded, %d of them dirty, %d waited for (%.2f %%), "+
			"%d copied ahead, %d onboarded; %.1f %% reused; link out %.1f %% busy; %.2f pages a piece out, "+
			"%.2f in; p99 ready after %v; %d refused",
		o.taken, o.evicted, o.offloaded, o.dirty, o.waiting, 100*o.share(), o.ahead, o.onboarded,
		100*o.reused, 100*o.link, o.perPiece[0], o.perPiece[1], o.p99, o.refused)
}

// chats are services with ever more to do: the first leaves the device idle now
// and then, the last never.
func chats() map[string]chat {
	base := chat{users: 120, turns: 600, pages: windows.PageCounts{Primary: 6000, Secondary: 40000},
		sequence: 24, document: 1200, seed: 1}
	calm, busy, hybrid, tight := base, base, base, base
	calm.think, busy.think, hybrid.think, tight.think = 60*time.Second, 10*time.Second, 20*time.Second,
		10*time.Second
	hybrid.windows = []int{1 << 30, 512}
	tight.pages.Primary = 3000
	documents := busy
	documents.document, documents.sequence, documents.turns = 5000, 10, 300
	full := busy // host memory, too: what is copied ahead there displaces nothing
	full.pages.Secondary = 7000
	chunked := full // pages of limited windows come and go while a prompt is computed
	chunked.windows, chunked.chunk, chunked.sequence = []int{1 << 30, 512}, 256, 12
	chunked.pages = windows.PageCounts{Primary: 3000, Secondary: 4000}
	return map[string]chat{
		"calm": calm, "busy": busy, "hybrid": hybrid, "tight": tight, "documents": documents,
		"full": full, "chunked": chunked,
	}
}

// Off, nearly every eviction with contents makes a page wait for the link. On,
// fewer than one in a hundred does, and everything else is as it was.
func TestAheadOfDemand(t *testing.T) {
	for name, c := range chats() {
		t.Run(name, func(t *testing.T) {
			c.turns = cmp.Or(map[bool]int{true: 300}[testing.Short()], c.turns)
			on := newChatRun(t, c)
			on.run()

			c.off = true
			off := newChatRun(t, c)
			off.run()
			t.Logf("\non:  %v\noff: %v", on.outcome(), off.outcome())
			require.NotZero(t, off.outcome().offloaded)
			assert.InDelta(t, 1, off.outcome().share(), 0, "a request waits for each copy")
			assert.Less(t, on.outcome().share(), 0.01)
		})
	}
}

// BenchmarkAhead is the busiest chat over links of ever less speed, with and
// without offloading ahead of demand.
func BenchmarkAhead(b *testing.B) {
	for _, slower := range []float64{1, 8, 32, 64} {
		for _, off := range []bool{true, false} {
			b.Run(fmt.Sprintf("link=1_%g/ahead=%t", slower, !off), func(b *testing.B) {
				c := chats()["documents"]
				c.off, c.slower = off, slower
				if quick() {
					c.turns /= 10
				}
				for b.Loop() {
					h := newChatRun(b, c)
					h.run()
					o := h.outcome()
					b.Log(o)
					b.ReportMetric(100*o.share(), "waiting-%")
					b.ReportMetric(100*o.link, "link-%")
					b.ReportMetric(float64(o.p99)/1e6, "p99-ready-ms")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
