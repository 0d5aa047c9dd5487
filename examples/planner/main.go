// Command planner replays a trace under several settings and shows what memory, quotas
// and priorities are worth.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
)

// plan is one setting to try.
type plan struct {
	name         string
	device, host int64   // bytes
	gold         float64 // share of the salt gold, the others have the rest; 0: no quotas
	retention    *kvactor.Retention
}

// asked is one request of a trace.
type asked struct {
	at     time.Duration
	salt   string
	prompt []kvactor.Token
}

// rate counts prompt tokens.
type rate struct{ reused, of int }

func (r rate) String() string { return fmt.Sprintf("%2.0f%%", 100*float64(r.reused)/float64(r.of)) }

// replay serves a trace one request after the other and gives the counters, and
// what each salt has reused.
func replay(ctx context.Context, p plan, trace []asked) (kvactor.Stats, map[string]rate, error) {
	model := windows.Presets()["Llama-3.1-8B"].Model
	cache := kvactor.DefaultCache()
	cache.HostCacheSize = p.host
	if p.gold > 0 { // without a quota of their own the others could not be over it
		cache.SaltQuotas, cache.OtherSaltsQuota = map[string]float64{"gold": p.gold}, 1-p.gold
	}
	pools, err := windows.Pools(model, cache)
	if err != nil {
		return kvactor.Stats{}, nil, err
	}
	// The page counts of the real model decide everything. The simulated device
	// moves real bytes, so its pages are those of a small model.
	counts, err := windows.Split(pools, model, cache, windows.Budget{DeviceBytes: p.device})
	if err != nil {
		return kvactor.Stats{}, nil, err
	}
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 40, Poison: sim.PoisonOff})
	if err != nil {
		return kvactor.Stats{}, nil, err
	}
	defer device.Close()
	var now time.Duration // durations of priorities run by the trace's time
	clock := actors.WithClock(func() time.Duration { return now })
	engine, err := kvactor.Open(kvactor.Config{
		Model: model.Small(), Cache: cache, Pages: counts, Device: device,
	}, clock)
	if err != nil {
		return kvactor.Stats{}, nil, err
	}
	rates := map[string]rate{}
	for _, r := range trace {
		device.Advance(r.at - now) // copies take their time in it, and end
		now = r.at
		s, err := engine.Admit(ctx, kvactor.AdmitRequest{
			Namespace: kvactor.Namespace{Salt: r.salt}, Tokens: r.prompt, Retention: p.retention,
		})
		if errors.Is(err, kvactor.ErrOutOfPages) {
			continue // longer than the whole pool
		}
		check(err)
		before := rates[r.salt]
		rates[r.salt] = rate{before.reused + s.Reused(), before.of + len(r.prompt)}
		check(s.Commit(ctx, len(r.prompt), kvactor.Ticket{}))
		check(s.Release(ctx, kvactor.Ticket{}))
	}
	stats, err := engine.Stats(ctx)
	check(err)
	_, err = engine.Close(ctx)
	return stats, rates, err
}

func main() {
	const giB = 1 << 30
	first := &kvactor.Retention{
		Ranges: []kvactor.RetentionRange{{End: 256, Priority: 90, Duration: time.Minute}},
	}
	trace := conversations(400)
	fmt.Println("setting         gold  others  device pages  evicted  onboarded")
	for _, p := range []plan{
		{name: "1 GiB", device: giB},
		{name: "2 GiB", device: 2 * giB},
		{name: "4 GiB", device: 4 * giB},
		{name: "1 + 3 GiB", device: giB, host: 3 * giB},
		{name: "gold has half", device: giB, gold: 0.5},
		{name: "first 256 dear", device: giB, retention: first},
	} {
		stats, rates, err := replay(context.Background(), p, trace)
		check(err)
		pool := stats.Pools[0]
		fmt.Printf("%-14s%6v%8v%14d%9d%11d\n", p.name, rates["gold"], rates[""], pool.Primary.Total,
			pool.Evicted, pool.Onboarded)
	}
}

// conversations makes a trace of twenty conversations with four system prompts,
// a quarter of them of the salt gold.
func conversations(turns int) []asked {
	random := rand.New(rand.NewPCG(1, 1))
	grow := func(tokens []kvactor.Token, n int) []kvactor.Token {
		for range n {
			tokens = append(tokens, kvactor.Token(random.IntN(32000)))
		}
		return tokens
	}
	var system, history [20][]kvactor.Token
	for i := range system {
		system[i] = grow(nil, 256)
		if i >= 4 {
			system[i] = system[i%4]
		}
	}
	var trace []asked
	for i := range turns {
		c := random.IntN(20)
		if history[c] == nil || len(history[c]) > 2000 {
			history[c] = append([]kvactor.Token(nil), system[c]...)
		}
		history[c] = grow(history[c], 150)
		salt := ""
		if c%4 == 0 {
			salt = "gold"
		}
		trace = append(trace, asked{
			time.Duration(i) * time.Second, salt, append([]kvactor.Token(nil), history[c]...),
		})
	}
	return trace
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
