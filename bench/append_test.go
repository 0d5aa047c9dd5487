package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

const (
	batchSequences = 512
	// batchSteps is how many tokens an answer has. Then another sequence takes
	// its place, untimed: every second step one, as with in-flight batching.
	batchSteps = 1024
	// settling is how many steps it takes until the pools are full, and runs of
	// blocks grow in memory that others have left.
	settling = 4 * batchSteps
)

// batch is the running sequences of a server that decodes: each step appends
// one token to each and commits the token before.
type batch struct {
	do      do
	prompts []*calls
	append  messages.Append
	lengths []int
	step    int
}

// newBatch admits sequences whose prompts are 512 to 4,096 tokens long and
// begin with the same 512.
func newBatch(do do, seed uint64) *batch {
	r := dice(seed)
	t := &batch{do: do, lengths: make([]int, batchSequences)}
	begin := random(r, 512)
	for range batchSequences {
		tokens := append(append([]messages.Token(nil), begin...), random(r, r.IntN(4096-512))...)
		t.prompts = append(t.prompts, newCalls(tokens))
		t.append.Steps = append(t.append.Steps, messages.AppendStep{Tokens: make([]messages.Token, 1)})
	}
	for i := range t.prompts {
		t.admit(i)
	}
	return t
}

func (t *batch) admit(i int) {
	p := t.prompts[i]
	t.do(&p.admit)
	accept(p.admit.Results[0].Err)
	t.lengths[i] = len(p.admit.Requests[0].Tokens)
	id := p.admit.Results[0].Sequence
	p.compute(t.do, t.lengths[i])
	t.append.Steps[i].Sequence = id
}

func (t *batch) end(i int) {
	p := t.prompts[i]
	p.release.Steps[0] = messages.ReleaseStep{Sequence: p.admit.Results[0].Sequence, Discard: true}
	t.do(&p.release)
	accept(p.release.Results[0].Err)
}

// next is one engine step. The tokens differ from sequence to sequence and
// from step to step, as sampled ones do.
func (t *batch) next() time.Duration {
	t.step++
	if every := batchSteps / batchSequences; t.step%every == 0 {
		i := t.step / every % batchSequences
		t.end(i)
		t.admit(i)
	}
	for i := range t.append.Steps {
		s := &t.append.Steps[i]
		s.Tokens[0] = messages.Token((t.step*batchSequences + i) % vocabulary)
		s.Computed = t.lengths[i]
		t.lengths[i]++
	}
	start := time.Now()
	t.do(&t.append)
	return time.Since(start)
}

// BenchmarkAppend is an engine step of 512 sequences in three pools, one token
// each: pages where blocks begin, blocks stored where they end, pages dropped
// where they leave a window. The floor is the same without actors.
func BenchmarkAppend(b *testing.B) {
	s := hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock)
	above, below := newBatch(s.actors(b), 6), newBatch(s.direct().Do, 6)
	for range scaled(settling) {
		above.next()
		below.next()
	}
	c := versus(b, above.next, below.next)
	for i := range above.append.Results {
		require.NoError(b, above.append.Results[i].Err)
	}
	c.tail(b)
	b.ReportMetric(c.engine.quantile(0.5)/batchSequences, "ns/sequence")
}
