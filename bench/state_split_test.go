package bench

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// hybridWorkload is prompts that come one after the other to a model with one layer of
// attention and one with a state, in memory that is short for both.
type hybridWorkload struct {
	name    string
	prompts [][]messages.Token
	blocks  int // device memory, in blocks of attention
	state   int // a state, in blocks of attention
}

// hybridBlock is tokens of a block of the engine: few, since only blocks matter.
const hybridBlock = 4

// hybridSplit says how the memory is divided.
type hybridSplit struct {
	policy   string
	states   float64 // of the memory for states; 0: as the engine divides it
	interval int     // blocks between further checkpoints; 0: none
	every    int     // requests between looks at demand; 0: the split stays
}

// fromTrace takes the prompts of a trace.
func fromTrace(b *testing.B, t trace, requests, blocks, state int) hybridWorkload {
	w := hybridWorkload{name: t.name, blocks: blocks, state: state}
	for i, r := range t.read(b, 1<<60) {
		if i == requests {
			break
		}
		var prompt []messages.Token
		for _, run := range r.Runs {
			for id := run[0]; id < run[0]+run[1]; id++ {
				prompt = (trace{blockTokens: hybridBlock}).block(prompt, id, hybridBlock)
			}
		}
		w.prompts = append(w.prompts, append(prompt, messages.Token(1<<30+i)))
	}
	return w
}

// alternating are conversations that take turns, each with a block more every time.
func alternating(chats, turns, first, blocks, state int) hybridWorkload {
	w := hybridWorkload{name: fmt.Sprintf("%d alternating conversations", chats), blocks: blocks,
		state: state}
	for turn := range turns {
		for chat := range chats {
			var prompt []messages.Token
			for k := range first + turn {
				prompt = (trace{blockTokens: hybridBlock}).block(prompt, chat<<16+k, hybridBlock)
			}
			w.prompts = append(w.prompts, append(prompt, messages.Token(1<<30+turn)))
		}
	}
	return w
}

// reused replays the workload and returns the part of all prompt tokens that was reused.
func (w hybridWorkload) reused(s hybridSplit) float64 {
	page := int64(2 * hybridBlock)
	longest := 0
	for _, prompt := range w.prompts {
		longest = max(longest, len(prompt))
	}
	model := windows.Model{
		Layers: 2, KVHeads: []int{1, 0}, HeadDim: 1, DType: windows.Int8,
		MaxSeqLen: longest + hybridBlock,
		States:    []windows.State{{Layers: []int{1}, Bytes: page * int64(w.state)}},
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.EvictionPolicy = hybridBlock, s.policy
	cache.StateCheckpointInterval = s.interval * hybridBlock
	pools := must(windows.Pools(model, cache))
	if s.states > 0 {
		cache.PoolFractions = map[string]float64{pools[0].Name: 1 - s.states, pools[1].Name: s.states}
	}
	var counts []windows.PageCounts
	for _, n := range must(windows.Divide(pools, model, cache.ForMixedLengths(model),
		page*int64(w.blocks))) {
		counts = append(counts, windows.PageCounts{Primary: n})
	}
	cache.PoolFractions = nil
	var now time.Duration
	options := []actors.Option{actors.WithClock(func() time.Duration { return now })}
	if s.every > 0 {
		options = append(options, actors.WithAutoRebalance(s.every, func(messages.Rebalanced) {}))
	}
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer system.Shutdown()
	e := must(
		actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Pages: counts,
			Device: &quietDevice{}}, options...))
	ctx := context.Background()
	tokens, reused := 0, 0
	for _, prompt := range w.prompts {
		now += time.Second
		tokens += len(prompt)
		a, err := e.Admit(ctx, messages.AdmitRequest{Tokens: prompt})
		if err != nil {
			continue // too long for the split
		}
		reused += a.ReusedTokens
		for _, end := range append(a.Checkpoints, len(prompt)) {
			must(e.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: end}}))
		}
		must(e.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}}))
	}
	must(e.Close(ctx))
	return float64(reused) / float64(tokens)
}

// BenchmarkStateSplit searches the split between attention and states, and the distance of
// checkpoints, and compares the engine's own, as it begins and when it follows demand.
func BenchmarkStateSplit(b *testing.B) {
	shares, intervals := []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7}, []int{0, 4, 16}
	if quick() {
		shares, intervals = shares[3:4], intervals[:1]
	}
	for name, make := range map[string]func(b *testing.B) hybridWorkload{
		"conversation": func(b *testing.B) hybridWorkload {
			return fromTrace(b, traces[0], scaled(4000), 6000, 8)
		},
		"agents": func(b *testing.B) hybridWorkload {
			return fromTrace(b, traces[3], scaled(1<<20), 6000, 64)
		},
		"alternating": func(*testing.B) hybridWorkload { return alternating(2, 40, 40, 120, 4) },
	} {
		for _, policy := range []string{windows.PriorityLRU, windows.Forecast} {
			b.Run(name+"/"+policy, func(b *testing.B) {
				w := make(b)
				for b.Loop() {
					best := hybridSplit{policy: policy}
					rate := w.reused(best)
					b.ReportMetric(100*rate, "own-%")
					for _, states := range shares {
						for _, interval := range intervals {
							s := hybridSplit{policy: policy, states: states, interval: interval}
							if r := w.reused(s); r > rate {
								best, rate = s, r
							}
						}
					}
					b.ReportMetric(100*rate, "best-%")
					b.ReportMetric(100*best.states, "best-states-%")
					b.ReportMetric(float64(best.interval), "best-interval")
					b.ReportMetric(100*w.reused(hybridSplit{policy: policy, every: len(w.prompts) / 40}), "live-%")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// The engine's own split serves two conversations that take turns, and from a split that keeps one
// checkpoint, with which nothing is reused, demand finds one that serves them.
func TestStatesFollowDemand(t *testing.T) {
	w := alternating(2, 40, 40, 120, 4)
	for _, policy := range []string{windows.PriorityLRU, windows.Forecast} {
		own := w.reused(hybridSplit{policy: policy})
		few := w.reused(hybridSplit{policy: policy, states: 0.07})
		live := w.reused(hybridSplit{policy: policy, states: 0.07, every: 2})
		t.Logf("%s: own %.3f, few states %.3f, few states live %.3f", policy, own, few, live)
		assert.Greater(t, own, 0.35, policy)
		assert.Less(t, few, 0.05, policy)
		assert.Greater(t, live, 0.2, policy)
	}
}
