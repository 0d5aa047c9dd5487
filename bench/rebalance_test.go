package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A shift is a service whose users change: for a while they chat, with short
// contexts, then they ask about long documents, then they chat again. The model
// is a hybrid: one layer in six has full attention, five a window, so that a
// short context needs most of its bytes in the limited pool and a long one
// nearly all in the other.
type shift struct {
	phases []phase
	bytes  int64   // of device memory
	full   float64 // of it for full attention, at the start
	every  int     // rounds between looks at demand; 0: the split stays
	seed   uint64
}

// phase is a time in which users are alike.
type phase struct {
	turns, users   int
	shortest, span int // tokens of a first prompt
	follow         int // tokens of a later prompt, at most
	turnsEach      int // then a user begins again
	running        int // sequences at once
}

const (
	shiftBlock  = 16
	shiftWindow = 1024
	shiftLayers = 6
	shiftAnswer = 60
)

var (
	chatting = phase{turns: 6000, users: 260, shortest: 200, span: 800, follow: 150, turnsEach: 8,
		running: 16}
	reading = phase{turns: 1500, users: 70, shortest: 6000, span: 8000, follow: 60, turnsEach: 20,
		running: 8}
	poring = phase{turns: 1000, users: 26, shortest: 16000, span: 12000, follow: 60, turnsEach: 30,
		running: 4}
)

// shifting is a shift under way.
type shifting struct {
	shift
	engine                                             *actors.Engine
	dice                                               *rand.Rand
	active                                             []*reader
	moves                                              int
	prompt, reused, refused, admitted, given, together int
}

// reader is a user with what was said so far.
type reader struct {
	history []messages.Token
	turns   int
	id      messages.SequenceID
	running bool
}

// play serves all phases, shows the service to see, and ends it.
func (s shift) play(see func(*shifting)) {
	h := &shifting{shift: s, dice: dice(s.seed)}
	model := windows.Model{Layers: shiftLayers, KVHeads: []int{1}, HeadDim: 1, DType: windows.Int8,
		MaxSeqLen: 1 << 15}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = shiftBlock
	cache.MaxAttentionWindow = []int{1 << 15, shiftWindow, shiftWindow, shiftWindow, shiftWindow,
		shiftWindow}
	pools := must(windows.Pools(model, cache))
	cache.PoolFractions = map[string]float64{pools[0].Name: 1 - s.full, pools[1].Name: s.full}
	primary := must(windows.Divide(pools, model, cache, s.bytes))
	counts := []windows.PageCounts{{Primary: primary[0]}, {Primary: primary[1]}}
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	var options []actors.Option
	if s.every > 0 {
		options = append(options, actors.WithAutoRebalance(s.every,
			func(messages.Rebalanced) { h.moves++ }))
	}
	h.engine = must(
		actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Pages: counts,
			Device: &quietDevice{}}, options...))
	h.run()
	see(h)
	must(h.engine.Close(context.Background()))
	system.Shutdown()
}

// run serves all phases.
func (h *shifting) run() {
	for _, p := range h.phases {
		users := make([]reader, p.users)
		for range p.turns {
			u := &users[h.dice.IntN(len(users))]
			if u.running {
				continue
			}
			for len(h.active) >= p.running {
				h.leave()
			}
			h.turn(p, u)
		}
		for len(h.active) > 0 {
			h.leave()
		}
	}
}

// turn is a question of a user and its answer; the sequence stays until others
// push it out. A turn that finds no pages makes place and tries again.
func (h *shifting) turn(p phase, u *reader) {
	ctx := context.Background()
	if u.turns++; len(u.history) == 0 || u.turns > p.turnsEach {
		u.history, u.turns = random(h.dice, p.shortest+h.dice.IntN(p.span)), 0
	} else {
		u.history = append(u.history, random(h.dice, 20+h.dice.IntN(p.follow))...)
	}
	request := messages.AdmitRequest{Tokens: u.history, ChunkTokens: 512}
	a, err := h.engine.Admit(ctx, request)
	for ; err != nil && len(h.active) > 0; a, err = h.engine.Admit(ctx, request) {
		h.refused++
		h.leave()
	}
	h.prompt += len(u.history)
	if err != nil {
		h.given++
		return
	}
	h.admitted++
	h.together += len(h.active) + 1
	h.reused += a.ReusedTokens
	for n := a.ReusedTokens; n < len(u.history); {
		n = min(len(u.history), (n+512)/shiftBlock*shiftBlock)
		accept(must(
			h.engine.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: n}}))[0].Err)
	}
	answer := random(h.dice, shiftAnswer)
	u.id, u.running = a.Sequence, true
	h.active = append(h.active, u)
	r := must(
		h.engine.Append(ctx,
			[]messages.AppendStep{{Sequence: a.Sequence, Tokens: answer,
				Computed: len(u.history) + len(answer)}}))
	if r[0].Err == nil {
		u.history = append(u.history, answer...)
	}
}

// leave ends the oldest sequence.
func (h *shifting) leave() {
	u := h.active[0]
	h.active = h.active[1:]
	u.running = false
	must(h.engine.Release(context.Background(), []messages.ReleaseStep{{Sequence: u.id}}))
}

// rate is the part of all prompt tokens that no one computed.
func (h *shifting) rate() float64 { return float64(h.reused) / float64(h.prompt) }

// crowd is how many sequences ran at once, on average.
func (h *shifting) crowd() float64 { return float64(h.together) / float64(h.admitted) }

func (h *shifting) String() string {
	return fmt.Sprintf("%.1f %% reused, %d admitted, %.1f at once, %d refusals, %d given up, %d moves",
		100*h.rate(), h.admitted, h.crowd(), h.refused, h.given, h.moves)
}

// shifts are services in memory that is short for each of the phases. In the
// last one, sequences stay until the next finds no pages.
func shifts() map[string]shift {
	const bytes = 2_000_000
	staying, stayingPoring := chatting, poring
	staying.running, stayingPoring.running = 1000, 1000
	return map[string]shift{
		"documents":      {phases: []phase{chatting, reading, chatting}, bytes: bytes, seed: 1},
		"long documents": {phases: []phase{chatting, poring, chatting, poring}, bytes: bytes, seed: 4},
		"chats alone":    {phases: []phase{chatting}, bytes: bytes, seed: 2},
		"crowded":        {phases: []phase{staying, stayingPoring, staying}, bytes: bytes, seed: 5},
	}
}

// everyRounds is between two looks at demand: ten or twenty turns.
const everyRounds = 100

// best tries splits that stay as they are.
func (s shift) best(splits []float64, say func(string, ...any)) (rate, crowd float64) {
	for _, full := range splits {
		s.full, s.every = full, 0
		s.play(func(h *shifting) {
			rate, crowd = max(rate, h.rate()), max(crowd, h.crowd())
			say("%2.0f %% for full attention: %v", 100*full, h)
		})
	}
	return rate, crowd
}

// runRebalanced tries a split that follows demand.
func (s shift) runRebalanced(full float64, say func(string, ...any)) (rate, crowd float64) {
	s.full, s.every = full, everyRounds
	s.play(func(h *shifting) {
		rate, crowd = h.rate(), h.crowd()
		say("%2.0f %% at the start, live: %v", 100*full, h)
	})
	return rate, crowd
}

// BenchmarkRebalance sweeps static splits and plays each service live, from a
// good and from a bad start.
func BenchmarkRebalance(b *testing.B) {
	splits := []float64{0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8}
	for name, s := range shifts() {
		b.Run(name, func(b *testing.B) {
			if quick() {
				splits = []float64{0.25}
			}
			for b.Loop() {
				rate, crowd := s.best(splits, b.Logf)
				good, goodCrowd := s.runRebalanced(0.2, b.Logf)
				bad, badCrowd := s.runRebalanced(0.8, b.Logf)
				b.ReportMetric(100*rate, "best-static-%")
				b.ReportMetric(100*good, "live-%")
				b.ReportMetric(100*bad, "live-from-80-%")
				b.ReportMetric(crowd, "best-static-at-once")
				b.ReportMetric(goodCrowd, "live-at-once")
				b.ReportMetric(badCrowd, "live-from-80-at-once")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// Live rebalancing finds at least what the best split by hindsight does, less
// two parts in a hundred; here of those around the best that the benchmark finds.
func TestRebalanceAgainstStaticSplits(t *testing.T) {
	s := shifts()["documents"]
	rate, _ := s.best([]float64{0.2, 0.25, 0.3}, t.Logf)
	rebalanced, _ := s.runRebalanced(0.2, t.Logf)
	assert.Greater(t, rebalanced, rate-0.02)
}
