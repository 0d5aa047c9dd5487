package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
)

// Trace is a trace in memory: what the optimum and stack distances need of it, and how long a
// replay of it is.
type Trace struct {
	paper.Trace
	Arrivals []time.Duration
	Blocks   int64 // of all prompts
	Distinct int   // different ones of them
}

// Load reads a trace, at most limit requests of it if that is not 0.
func Load(path string, limit int) (t *Trace, err error) {
	reader, err := trace.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	t = &Trace{}
	for limit == 0 || len(t.Requests) < limit {
		next, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		t.Requests = append(t.Requests, slices.Clone(next.Blocks))
		t.Arrivals = append(t.Arrivals, next.Arrival)
		t.Blocks += int64(len(next.Blocks))
	}
	t.TokensPerBlock, t.Distinct = reader.TokensPerBlock(), reader.Distinct()
	return t, nil
}

// Optimal replays a trace with the policy that knows it. It has no engine, counts what Atomic
// counts, and reads the trace unless it is given one in memory.
func Optimal(ctx context.Context, c Config, t *Trace) (*Result, error) {
	if c.TokensPerBlock != 0 || c.HostPages != 0 {
		return nil, fmt.Errorf(
			"policy %s knows neither host pages nor other blocks than the trace's", paper.Optimal)
	}
	if t == nil {
		var err error
		if t, err = Load(c.Trace, c.Limit); err != nil {
			return nil, err
		}
	}
	start, gpu := time.Now(), cost.H100()
	r := &Result{
		Trace: filepath.Base(c.Trace), Mode: ModeAtomic, Policy: paper.Optimal,
		TokensPerBlock: t.TokensPerBlock, Pages: c.Pages, Pools: 1, Problems: []string{},
	}
	cache := paper.NewOptimum(c.Pages, t.Trace)
	var line timeline
	for i, blocks := range t.Requests {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		hits := 0
		for hits < len(blocks) && cache.Has(blocks[hits]) {
			hits++
		}
		r.look(len(blocks), hits, 0)
		all, reused := len(blocks)*t.TokensPerBlock, hits*t.TokensPerBlock
		r.PromptTokens += int64(all)
		r.ReusedTokens += int64(reused)
		r.SavedSeconds += cost.Prefill(&c.Costs, &gpu, cost.Span{To: reused}).Seconds()
		r.PrefillSeconds += cost.Prefill(&c.Costs, &gpu, cost.Span{From: reused, To: all}).Seconds()
		cache.Use(i, blocks)
		if c.Intervals > 0 {
			line.note(t.Arrivals[i], r.counted(nil))
		}
		if c.Progress != nil {
			c.Progress(r)
		}
	}
	if r.Blocks > 0 {
		r.HitRate = float64(r.Hits) / float64(r.Blocks)
	}
	r.OverTime = line.intervals(c.Intervals)
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}
