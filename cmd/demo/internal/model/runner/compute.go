package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
)

// Compute runs one step of sequences: a chunk of each whose prompt is not yet
// computed, and the tokens of the others that are not. It waits for the kernel
// if logits are wanted, and commits. A sequence that the engine has lost has an
// error in its place; the others are computed.
func (r *Runner) Compute(ctx context.Context, batch ...*Sequence) ([]error, error) {
	if err := r.ComputeOnly(ctx, batch...); err != nil {
		return nil, err
	}
	upTo := make([]int, len(batch))
	for i, s := range batch {
		upTo[i] = s.computed
	}
	return r.Commit(ctx, batch, upTo)
}

// ComputeOnly runs a step without committing it: tokens that may be rewound.
// Commit follows.
func (r *Runner) ComputeOnly(ctx context.Context, batch ...*Sequence) error {
	// Contexts come first. The order of the rest is the caller's.
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(batch[a]) - rank(batch[b]) })
	k := &kernel{r: r}
	upTo := make([]int, len(batch))
	for _, i := range order {
		s := batch[i]
		upTo[i] = s.until(r.Config.Chunk, r.Config.TokensPerBlock)
		if upTo[i] <= s.computed {
			return fmt.Errorf("nothing to compute: %d of %d tokens are", s.computed, len(s.Tokens))
		}
		if err := s.checkState("a step", s.computed); err != nil {
			return err
		}
		k.add(s, upTo[i])
	}
	ticket, err := k.run(ctx)
	if err != nil {
		return err
	}
	for i, s := range batch {
		s.computed, s.last, s.encode = upTo[i], ticket, len(s.encoder)
		s.state = upTo[i]
	}
	return nil
}

func rank(s *Sequence) int {
	if s.generating() {
		return 1
	}
	return 0
}

// kernel is one step on the compute stream.
type kernel struct {
	r     *Runner
	spec  gpu.Kernel
	of    []*Sequence       // by step sequence; beams repeat
	steps []*model.Sequence // in the executor's order
	pages []messages.Tables // by step sequence: [pool][0][block]
	seen  map[gpu.Slot]bool
	err   error // of the run

	ticket gpu.Ticket
}

// add puts the tokens [computed, upTo) of a sequence into the step.
func (k *kernel) add(s *Sequence, upTo int) {
	k.spec.Waits = append(k.spec.Waits, s.cached.Ready()...)
	tables := s.cached.Tables()
	s.Logits = nil // what the last step gave may still be in use
	beams := 1
	if s.beams != nil && s.generating() {
		beams = len(s.beams)
	}
	for b := range beams {
		tokens := s.Tokens[s.computed:upTo]
		if beams > 1 {
			tokens = s.beams[b][s.computed-s.Prompt : upTo-s.Prompt]
		}
		// The kernel runs later: by then the sequence may have been rewound.
		step := &model.Sequence{
			Tokens: slices.Clone(tokens), Cached: s.computed, Prompt: s.Prompt, Encoder: s.encoder,
			EncodeFrom: s.encode,
			LogitsFrom: len(tokens) - 1, State: s.stateEntry(s.computed),
		}
		if step.State+len(tokens) >= s.stateEntries() {
			s.state = unknownState // until the step has ended well
		}
		switch {
		case s.AllLogits:
			step.LogitsFrom = 0
		case upTo < s.Prompt:
			step.LogitsFrom = len(tokens)
		}
		own := make(messages.Tables, len(tables))
		for p := range tables {
			// The kernel runs later: by then the sequence's table may have grown.
			own[p] = [][]messages.PageID{slices.Clone(tables[p][min(b, len(tables[p])-1)])}
			k.touch(p, own[p][0], s, step)
		}
		k.of, k.steps, k.pages = append(k.of, s), append(k.steps, step), append(k.pages, own)
	}
}

// touch declares what the step reads and writes of one page table. Blocks from the first token that
// is computed to the last are written, all before are read. A page of states is read, and those
// behind it are written, or else the first one. The pages of later chunks are left alone: the
// engine does not expect the kernel there.
func (k *kernel) touch(pool int, table []messages.PageID, s *Sequence, step *model.Sequence) {
	tpb := k.r.Config.TokensPerBlock
	first, end := step.Cached/tpb, (step.Cached+len(step.Tokens)+tpb-1)/tpb
	switch {
	case k.r.isState(pool) && step.State+len(step.Tokens) < len(table):
		table = table[step.State:]
		first, end = 1, 1+len(step.Tokens)
	case k.r.isState(pool):
		first, end = 0, len(table)
	case k.r.Model.Encodes() && pool == len(k.r.pools)-1:
		first = s.encode / tpb
		if end = len(table); s.encode >= len(s.encoder) {
			first = end
		}
	}
	for i, page := range table[:min(end, len(table))] {
		if page == messages.NoPage {
			continue
		}
		slot := k.r.slot(pool, page)
		if k.seen[slot] {
			continue
		}
		if k.seen == nil {
			k.seen = map[gpu.Slot]bool{}
		}
		k.seen[slot] = true
		if i < first {
			k.spec.Reads = append(k.spec.Reads, gpu.Access{Slot: slot})
		} else {
			k.spec.Writes = append(k.spec.Writes, gpu.Access{Slot: slot})
		}
	}
}

// run launches the kernel and waits for it if it has logits to give.
func (k *kernel) run(ctx context.Context) (gpu.Ticket, error) {
	k.spec.Label, k.spec.Nanos, k.spec.Run = "step", kernelNanos*int64(len(k.steps)), k.body
	k.err = errNotRun
	ticket, err := k.r.launch.Launch(k.r.compute, k.spec)
	if err != nil {
		return ticket, err
	}
	k.ticket = ticket
	k.r.pending = append(k.r.pending, k)
	for _, step := range k.steps {
		if step.LogitsFrom < len(step.Tokens) {
			return ticket, k.r.Wait(ctx)
		}
	}
	return ticket, nil
}

// kernelNanos is the virtual time that a step takes for each sequence: long
// enough that copies go on beside it.
const kernelNanos = 20_000

var errNotRun = errors.New("the kernel has not run")

// Wait waits for all steps and gives their errors. Steps without logits, the
// chunks of a prompt before its last, are not waited for otherwise.
func (r *Runner) Wait(ctx context.Context) error {
	if len(r.pending) == 0 {
		return nil
	}
	// The kernels are queued: even when the context ends, their pages must not be
	// given back before they have run.
	err := r.sync(context.WithoutCancel(ctx), r.pending[len(r.pending)-1].ticket)
	for _, k := range r.pending {
		err = errors.Join(err, k.err)
	}
	r.pending = r.pending[:0]
	return err
}

// body is the kernel: it looks pages up and runs the model.
func (k *kernel) body(bytes gpu.PageBytes) {
	defer func() {
		if p := recover(); p != nil {
			k.err = fmt.Errorf("%v", p)
		}
	}()
	for i, step := range k.steps {
		step.Pages = make([][][]byte, len(k.pages[i]))
		for p, tables := range k.pages[i] {
			step.Pages[p] = attention.Resolve(nil, tables[0], func(page messages.PageID) []byte {
				return bytes(k.r.slot(p, page))
			})
		}
	}
	if k.err = k.r.exec.Run(k.steps); k.err != nil {
		return
	}
	for i, s := range k.of {
		// A step without logits is not waited for, and may run on another goroutine, such as
		// that of a store's task, while the host prepares the sequence's next one.
		if logits := k.steps[i].Logits; len(logits) > 0 {
			s.Logits = append(s.Logits, logits...)
		}
	}
}

// Prefill computes the whole prompt of a sequence, chunk by chunk, and collects
// the logits that it wants. A context that ends stops it between two chunks.
func (r *Runner) Prefill(ctx context.Context, s *Sequence) error {
	var logits [][]float32
	for !s.generating() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.one(ctx, s); err != nil {
			return err
		}
		logits = append(logits, s.Logits...)
	}
	s.Logits = logits
	return nil
}

// Extend appends one token and computes it.
func (r *Runner) Extend(ctx context.Context, s *Sequence, token messages.Token) error {
	if err := r.add(ctx, s, token); err != nil {
		return err
	}
	return r.one(ctx, s)
}

// add appends one token.
func (r *Runner) add(ctx context.Context, s *Sequence, token messages.Token) error {
	errs, err := r.Append(ctx, []*Sequence{s}, [][]messages.Token{{token}})
	return errors.Join(append(errs, err)...)
}

func (r *Runner) one(ctx context.Context, s *Sequence) error {
	errs, err := r.Compute(ctx, s)
	if err != nil {
		return err
	}
	return errs[0]
}

// Next is the greedy choice after the last step.
func (s *Sequence) Next() messages.Token { return model.Greedy(s.Logits[len(s.Logits)-1]) }
