// Command batching is a host with continuous batching: chunked prefill, a sampled token
// and two drafts for each sequence in a step, preemption when pages run out. Its kernels
// run on a stream of its own, under the checker of order.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
)

const (
	blockTokens = 4
	chunkTokens = 8
)

// chat is what the host keeps of a request.
type chat struct {
	tokens []kvactor.Token // prompt and answer
	until  int             // tokens at which it is complete
	seq    *kvactor.Sequence
	last   kvactor.Ticket // of its last kernel
}

// batcher is the host.
type batcher struct {
	engine           *kvactor.Engine
	device           *check.Device
	compute          gpu.Stream
	waiting, running []*chat
	preempted        int
	inputs           kvactor.Inputs
}

func main() {
	ctx := context.Background()
	b := newBatcher(15)
	for i := range kvactor.Token(4) {
		prompt := []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10 * i, 10*i + 1}
		b.waiting = append(b.waiting, &chat{tokens: prompt, until: 24})
	}
	for len(b.waiting)+len(b.running) > 0 {
		b.admit(ctx)
		b.prefill(ctx)
		b.decode(ctx)
	}
	stats, err := b.engine.Stats(ctx)
	must(err)
	fmt.Println(stats.ReusedTokens, "of", stats.PromptTokens, "prompt tokens reused,", b.preempted,
		"preempted")
	leaked, err := b.engine.Close(ctx)
	fmt.Println("pages leaked:", leaked, err, "unordered accesses:", b.device.Count())
}

// newBatcher opens an engine with a pool of full attention and one with a window.
func newBatcher(pages int) *batcher {
	simulated, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	device := check.Wrap(simulated, check.Options{})
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{2}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = blockTokens, []int{8, 64}
	engine, err := kvactor.Open(kvactor.Config{
		Model: model, Cache: cache, Pages: []kvactor.PageCounts{{Primary: 16}, {Primary: pages}},
		Device: device,
	})
	must(err)
	compute, err := device.NewStream("compute")
	must(err)
	return &batcher{engine: engine, device: device, compute: compute}
}

// admit admits what fits, in order.
func (b *batcher) admit(ctx context.Context) {
	for len(b.waiting) > 0 {
		c := b.waiting[0]
		s, err := b.engine.Admit(ctx, kvactor.AdmitRequest{Tokens: c.tokens, ChunkTokens: chunkTokens})
		var refusal *kvactor.Refusal
		if errors.Is(err, kvactor.ErrOutOfPages) && errors.As(err, &refusal) && !refusal.Never {
			return // until a sequence has been released
		}
		must(err)
		c.seq = s
		b.waiting, b.running = b.waiting[1:], append(b.running, c)
	}
}

// prefill computes one chunk of each prompt that is not computed, in one kernel.
func (b *batcher) prefill(ctx context.Context) {
	var batch []*chat
	var steps []kvactor.Step
	for _, c := range b.running {
		if s := c.seq; s.Computed() < s.Prompt() {
			// Chunks end at block boundaries, wherever the reuse ended; the last one at the prompt's end.
			end := min((s.Computed()+chunkTokens)/blockTokens*blockTokens, s.Prompt())
			batch, steps = append(batch, c), append(steps, kvactor.Step{Sequence: s, Computed: end})
		}
	}
	if len(batch) == 0 {
		return
	}
	after := b.launch("prefill", batch, steps)
	for i := range steps {
		steps[i].After = after
	}
	must(b.engine.Commit(ctx, steps))
}

// decode makes one step of all sequences whose prompts are computed: the token that was
// sampled last and two drafts.
func (b *batcher) decode(ctx context.Context) {
	var steps []kvactor.Step
	var batch []*chat
	for _, c := range b.running {
		if c.seq.Computed() >= c.seq.Prompt() {
			batch = append(batch, c)
			steps = append(steps, kvactor.Step{Sequence: c.seq, Tokens: sampleAndDraft(c)})
		}
	}
	if err := b.engine.Append(ctx, steps); err != nil && !errors.Is(err, kvactor.ErrOutOfPages) {
		log.Fatal(err)
	}
	var grown []*chat
	var computed []kvactor.Step
	for i, c := range batch {
		if steps[i].Err != nil {
			b.preempt(ctx, c)
			continue
		}
		c.tokens = append(c.tokens, steps[i].Tokens...)
		grown = append(grown, c)
		computed = append(computed, kvactor.Step{Sequence: c.seq, Computed: c.seq.Len()})
	}
	if len(grown) > 0 {
		b.verify(ctx, grown, b.launch("decode", grown, computed))
	}
}

// verify commits what was accepted and then drops the other drafts: in this order,
// because a rewind has no ticket of its own, and the pages that it drops wait for the
// last After of the sequence.
func (b *batcher) verify(ctx context.Context, batch []*chat, after kvactor.Ticket) {
	var accepted, dropped, complete []kvactor.Step
	for _, c := range batch {
		n := rejected(c)
		accepted = append(accepted, kvactor.Step{
			Sequence: c.seq, Computed: c.seq.Len() - n, After: after,
		})
		if n > 0 {
			dropped = append(dropped, kvactor.Step{Sequence: c.seq, Rewind: n})
		}
	}
	must(b.engine.Commit(ctx, accepted))
	must(b.engine.Rewind(ctx, dropped))
	for _, c := range batch {
		c.tokens = c.tokens[:c.seq.Len()]
		if len(c.tokens) >= c.until {
			complete = append(complete, kvactor.Step{Sequence: c.seq, After: c.last})
			b.running = slices.DeleteFunc(b.running, func(r *chat) bool { return r == c })
		}
	}
	must(b.engine.Release(ctx, complete))
}

// preempt releases a sequence that finds no page. It is admitted again with what it has
// generated, most of which will be reused.
func (b *batcher) preempt(ctx context.Context, c *chat) {
	must(c.seq.Release(ctx, c.last))
	b.running = slices.DeleteFunc(b.running, func(r *chat) bool { return r == c })
	b.waiting = append(b.waiting, c)
	b.preempted++
}

// launch queues one kernel that computes each sequence from its first uncomputed token
// to Computed of its step. A real kernel takes the inputs; the simulated one needs to
// know which pages it reads and writes.
func (b *batcher) launch(label string, batch []*chat, steps []kvactor.Step) kvactor.Ticket {
	var queries []kvactor.Query
	for _, st := range steps {
		queries = append(queries, kvactor.Query{Sequence: st.Sequence, To: st.Computed})
	}
	b.inputs.Fill(b.engine, queries)
	kernel := gpu.Kernel{Label: label, Nanos: 1000, Waits: b.inputs.Ready}
	kernel.Reads, kernel.Writes = b.inputs.Accesses(b.engine) // a real kernel takes the tables
	ticket, err := b.device.Launch(b.compute, kernel)
	must(err)
	for _, c := range batch {
		c.last = ticket
	}
	return ticket
}

// sampleAndDraft stands for a sampler and a draft model.
func sampleAndDraft(c *chat) []kvactor.Token {
	n := kvactor.Token(len(c.tokens))
	return []kvactor.Token{100 + n, 101 + n, 102 + n}
}

// rejected stands for the comparison of drafts with what the model would say.
func rejected(c *chat) int { return len(c.tokens) % 3 }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
