package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// Atomic replays a trace one request at a time.
func Atomic(ctx context.Context, c Config) (*Result, error) {
	s, err := open(c, ModeAtomic, 1)
	if err != nil {
		return nil, err
	}
	compute, err := serve.NewCompute(s.rig, "replay")
	if err != nil {
		return s.close(ctx, err)
	}
	one := &atomic{session: s, compute: compute, gpu: cost.H100()}
	one.admit.Requests = make([]messages.AdmitRequest, 1)
	one.release.Steps = make([]messages.ReleaseStep, 1)
	calls := context.WithoutCancel(ctx) // a request that has begun is counted
	for err == nil {
		var next *trace.Request
		if next, err = s.next(); err != nil || next == nil {
			break
		}
		if err = ctx.Err(); err != nil {
			break
		}
		err = one.replay(calls, next)
		s.progress(time.Duration(s.arrival.Load()))
	}
	s.result.checked(compute)
	return s.close(ctx, err)
}

// atomic replays requests. Its slices and records are reused from one to the next, but for tokens:
// the engine keeps the array of an admitted prompt.
type atomic struct {
	*session
	compute *serve.Compute
	gpu     cost.GPU
	tokens  []messages.Token // of one request
	links   []host.Chain
	tables  [][]messages.PageID
	admit   messages.Admit
	release messages.Release
}

// replay admits a request, computes its blocks, and releases it, which commits them.
// The model has no refusals: of a prompt that is longer than the cache, what the
// cache keeps are the first blocks, so the engine is given no more.
func (a *atomic) replay(ctx context.Context, t *trace.Request) error {
	a.arrival.Store(int64(t.Arrival))
	blocks := a.prompt(t.Blocks)
	size := a.config.TokensPerBlock
	stored := min(blocks, a.config.Pages) * size
	a.tokens = append(a.tokens[:stored], messages.MaxToken)
	a.admit.Requests[0] = messages.AdmitRequest{Tokens: a.tokens}
	if err := a.rig.Do(ctx, &a.admit); err != nil {
		return err
	}
	admitted := &a.admit.Results[0]
	if err := cmp.Or(a.admit.Err, admitted.Err); err != nil {
		return err
	}
	reused := admitted.ReusedTokens
	onHost := 0
	for _, pool := range admitted.Reuse { // one, of full attention
		onHost += pool.Onboarded
	}
	a.result.look(blocks, reused/size, min(reused/size, onHost))
	a.result.PromptTokens += int64(blocks * size)
	a.result.ReusedTokens += int64(reused)
	// The blocks that the cache has no room for are computed all the same.
	computed := cost.Prefill(&a.config.Costs, &a.gpu, cost.Span{From: reused, To: blocks * size})
	a.result.PrefillSeconds += computed.Seconds()
	a.result.SavedSeconds += cost.Prefill(&a.config.Costs, &a.gpu, cost.Span{To: reused}).Seconds()
	if !a.config.NoKernels {
		if err := a.run(ctx, admitted, stored, computed); err != nil {
			return err
		}
	}
	// The request ends with its only kernel, so what that computes is committed by the release.
	a.release.Steps[0] = messages.ReleaseStep{
		Sequence: admitted.Sequence, Computed: stored, After: a.compute.Last,
		AnswerTokens: t.AnswerTokens,
	}
	if err := a.rig.Do(ctx, &a.release); err != nil {
		return err
	}
	return cmp.Or(a.release.Err, a.release.Results[0].Err)
}

// prompt makes the tokens of the blocks, and those that fill up the engine's
// last block, with room for one token more. It tells how many blocks of
// the engine they are.
func (a *atomic) prompt(ids []int32) (blocks int) {
	own, size := a.reader.TokensPerBlock(), a.config.TokensPerBlock
	whole := (len(ids)*own + size - 1) / size * size
	a.tokens = slices.Grow(a.tokens[:0], whole+1)
	for i, id := range ids {
		n := own
		if rest := (i + 1) * own % size; i == len(ids)-1 && rest > 0 {
			n += size - rest
		}
		a.tokens = appendBlock(a.tokens, id, n)
	}
	blocks = len(a.tokens) / size
	if a.config.NoKernels {
		return blocks
	}
	at := host.Root(messages.Namespace{})
	a.links = a.links[:0]
	for _, token := range a.tokens {
		at = at.Next(token, messages.Cover{})
		a.links = append(a.links, at)
	}
	return blocks
}

// run checks what was reused and writes the rest, in one kernel.
func (a *atomic) run(
	ctx context.Context, admitted *messages.Admitted, stored int, lasts time.Duration,
) error {
	a.tables = a.tables[:0]
	for _, beams := range admitted.Tables {
		a.tables = append(a.tables, beams[0])
	}
	step, span := &a.compute.Step, host.Span{Chains: a.links, To: admitted.ReusedTokens,
		Table: a.tables}
	step.Waits, step.Reads = append(step.Waits, admitted.Ready...), append(step.Reads, span)
	span.From, span.To = span.To, stored
	step.Writes = append(step.Writes, span)
	return a.compute.Run(ctx, max(lasts, a.gpu.Step))
}
