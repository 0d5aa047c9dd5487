package readme

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	hazards "github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// chat is what the host keeps of a sequence.
type chat struct {
	id       messages.SequenceID
	tokens   []messages.Token // prompt and answer
	until    int              // tokens at which it is complete
	prompt   int              // those that it was admitted with
	computed int
	ready    []messages.Ticket // what its next kernel waits for
	last     messages.Ticket   // its last kernel
}

// batcher is a host with continuous batching: chunked prefill, a sampled token
// and two drafts for each sequence in a step, preemption when pages run out.
type batcher struct {
	engine           *actors.Engine
	device           *hazards.Device
	compute          gpu.Stream
	waiting, running []*chat
	preempted        int
}

const (
	blockTokens = 4
	chunkTokens = 8
)

func Example_batching() {
	ctx := context.Background()
	system := quietSystem()
	defer system.Shutdown()
	b := newBatcher(system, 15)
	for i := range messages.Token(4) {
		prompt := []messages.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10 * i, 10*i + 1}
		b.waiting = append(b.waiting, &chat{tokens: prompt, until: 24})
	}
	for len(b.waiting)+len(b.running) > 0 {
		b.admit(ctx)
		b.prefill(ctx)
		b.decode(ctx)
	}
	stats, err := b.engine.Stats(ctx)
	check(err)
	fmt.Println(stats.ReusedTokens, "of", stats.PromptTokens, "prompt tokens reused,", b.preempted, "preempted")
	leaked, err := b.engine.Close(ctx)
	fmt.Println("pages leaked:", leaked, err, "unordered accesses:", b.device.Count())
	// Output:
	// 83 of 136 prompt tokens reused, 7 preempted
	// pages leaked: 0 <nil> unordered accesses: 0
}

// newBatcher starts an engine with a full and a limited pool under a checker.
func newBatcher(system *actor.ActorSystem, pages int) *batcher {
	simulated, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	device := hazards.Wrap(simulated, hazards.Options{})
	model := windows.Model{Layers: 2, KVHeads: []int{2}, HeadDim: 8, DType: windows.Float16, MaxSeqLen: 64}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = blockTokens, []int{8, 64}
	config := actors.Config{Model: model, Cache: cache, Pages: []windows.Counts{{Primary: 16}, {Primary: pages}}, Device: device}
	engine, err := actors.Spawn(system.Root, config)
	check(err)
	compute, err := device.NewStream("compute")
	check(err)
	return &batcher{engine: engine, device: device, compute: compute}
}

// admit takes in what fits, in order.
func (b *batcher) admit(ctx context.Context) {
	for len(b.waiting) > 0 {
		c := b.waiting[0]
		in, err := b.engine.Admit(ctx, messages.AdmitRequest{Tokens: c.tokens, ChunkTokens: chunkTokens})
		if errors.Is(err, messages.ErrOutOfPages) && len(b.running) > 0 {
			return // until a sequence has gone
		}
		check(err)
		c.id, c.prompt, c.computed, c.ready = in.Sequence, len(c.tokens), in.ReusedTokens, in.Ready
		b.waiting, b.running = b.waiting[1:], append(b.running, c)
	}
}

// prefill computes one chunk of each prompt that is not computed, in one kernel.
func (b *batcher) prefill(ctx context.Context) {
	var batch []*chat
	var steps []messages.CommitStep
	for _, c := range b.running {
		if c.computed < c.prompt {
			// Chunks end at block boundaries, wherever the reuse ended; the last at the prompt's end.
			end := min((c.computed+chunkTokens)/blockTokens*blockTokens, c.prompt)
			batch = append(batch, c)
			steps = append(steps, messages.CommitStep{Sequence: c.id, Computed: end})
		}
	}
	if len(batch) == 0 {
		return
	}
	after := b.launch(ctx, "prefill", batch)
	for i := range steps {
		steps[i].After = after
	}
	results, err := b.engine.Commit(ctx, steps)
	check(err)
	for i, c := range batch {
		check(results[i].Err)
		c.computed = steps[i].Computed
		c.ready = results[i].Ready // the next chunk's pages of limited windows
	}
}

// decode takes one step of all sequences whose prompts are computed.
func (b *batcher) decode(ctx context.Context) {
	var steps []messages.AppendStep
	var batch []*chat
	for _, c := range b.running {
		if c.computed >= c.prompt {
			batch = append(batch, c)
			steps = append(steps, messages.AppendStep{Sequence: c.id, Tokens: sampleAndDraft(c)})
		}
	}
	results, err := b.engine.Append(ctx, steps)
	check(err)
	grown := batch[:0]
	for i, c := range batch {
		if errors.Is(results[i].Err, messages.ErrOutOfPages) {
			b.preempt(ctx, c)
			continue
		}
		check(results[i].Err)
		c.tokens = append(c.tokens, steps[i].Tokens...)
		c.ready = append(c.ready, results[i].Ready...)
		grown = append(grown, c)
	}
	if len(grown) > 0 {
		b.verify(ctx, grown, b.launch(ctx, "decode", grown))
	}
}

// verify commits what was accepted, then takes the other drafts back: in this
// order, for a rewind has no ticket of its own, and what it drops is kept for
// the kernels before the last After.
func (b *batcher) verify(ctx context.Context, batch []*chat, after messages.Ticket) {
	var steps []messages.CommitStep
	for _, c := range batch {
		steps = append(steps, messages.CommitStep{Sequence: c.id, Computed: len(c.tokens) - rejected(c), After: after})
	}
	results, err := b.engine.Commit(ctx, steps)
	check(err)
	var gone []messages.ReleaseStep
	for i, c := range batch {
		check(results[i].Err)
		if n := rejected(c); n > 0 {
			check(b.engine.Rewind(ctx, c.id, n))
		}
		c.computed, c.ready = steps[i].Computed, results[i].Ready
		c.tokens = c.tokens[:c.computed]
		if len(c.tokens) >= c.until {
			gone = append(gone, messages.ReleaseStep{Sequence: c.id, After: c.last})
			b.running = slices.DeleteFunc(b.running, func(r *chat) bool { return r == c })
		}
	}
	_, err = b.engine.Release(ctx, gone)
	check(err)
}

// preempt lets a sequence go that finds no page. It is admitted again with what
// it has generated; most of that will be matched.
func (b *batcher) preempt(ctx context.Context, c *chat) {
	_, err := b.engine.Release(ctx, []messages.ReleaseStep{{Sequence: c.id, After: c.last}})
	check(err)
	b.running = slices.DeleteFunc(b.running, func(r *chat) bool { return r == c })
	b.waiting = append(b.waiting, c)
	b.preempted++
}

// launch queues one kernel for a batch: it reads the pages of what is computed
// and writes those from the first uncomputed token's block on.
func (b *batcher) launch(ctx context.Context, label string, batch []*chat) messages.Ticket {
	kernel := gpu.Kernel{Label: label, Nanos: 1000}
	handles := b.engine.DevicePools()
	for _, c := range batch {
		kernel.Waits = append(kernel.Waits, c.ready...)
		tables, err := b.engine.Tables(ctx, c.id)
		check(err)
		for pool, beams := range tables {
			for i, page := range beams[0] {
				access := gpu.Access{Slot: gpu.Slot{Pool: handles[pool], Tier: messages.Primary, Page: page}}
				switch {
				case page == messages.NoPage: // its window has passed
				case i < c.computed/blockTokens:
					kernel.Reads = append(kernel.Reads, access)
				default:
					kernel.Writes = append(kernel.Writes, access)
				}
			}
		}
	}
	ticket, err := b.device.Launch(b.compute, kernel)
	check(err)
	for _, c := range batch {
		c.last = ticket
	}
	return ticket
}

// sampleAndDraft stands for a sampler and a draft model.
func sampleAndDraft(c *chat) []messages.Token {
	n := messages.Token(len(c.tokens))
	return []messages.Token{100 + n, 101 + n, 102 + n}
}

// rejected stands for the comparison of drafts with what the model would say.
func rejected(c *chat) int { return len(c.tokens) % 3 }
