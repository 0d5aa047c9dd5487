package hazards

import (
	"context"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// sequence is what a host knows of a running sequence.
type sequence struct {
	id     messages.SequenceID
	chains []host.Chain // after each token
	prompt int
	chunk  int
	// checkpoints are where the engine wants a commit of the prompt to end, ascending.
	checkpoints []int
	computed    int
	stream      int          // that its kernels run on
	ready       []gpu.Ticket // what the next kernel waits for
	last        gpu.Ticket   // the latest kernel
}

// text is n tokens that no other text begins with.
func text(of, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(of<<16 + i)
	}
	return tokens
}

// admitted is the host's view of an admission.
func admitted(r messages.AdmitRequest, a *messages.Admitted) *sequence {
	return &sequence{
		id: a.Sequence, prompt: len(r.Tokens), chunk: r.ChunkTokens, computed: a.ReusedTokens,
		ready:       a.Ready,
		checkpoints: a.Checkpoints,
		chains:      host.Chains(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens}),
	}
}

// admit takes a prompt in; nothing of it is computed.
func (w *world) admit(tokens []messages.Token) (*sequence, messages.Admitted, error) {
	r := messages.AdmitRequest{Tokens: tokens}
	a, err := w.Admit(context.Background(), r)
	if err != nil {
		return nil, a, err
	}
	return admitted(r, &a), a, nil
}

// start takes a prompt in and computes it.
func (w *world) start(tokens []messages.Token) (*sequence, messages.Admitted, error) {
	q, a, err := w.admit(tokens)
	if err != nil {
		return nil, a, err
	}
	for q.computed < q.prompt {
		if err := w.compute(q, q.reach()); err != nil {
			return q, a, err
		}
	}
	return q, a, nil
}

// reach is how far the next commit of the prompt goes.
func (q *sequence) reach() int {
	to := q.prompt
	if q.chunk != 0 {
		to = min(to, (q.computed+q.chunk)/tpb*tpb)
	}
	for _, at := range q.checkpoints {
		if at > q.computed {
			return min(to, at)
		}
	}
	return to
}

// launch queues the kernel of the tokens up to n. Without any the sequence goes
// on waiting for what it waits for.
func (w *world) launch(q *sequence, n int) error {
	if n <= q.computed {
		return nil
	}
	tables, err := w.TablesOf(context.Background(), q.id)
	if err != nil {
		return err
	}
	table := host.Beam(tables, 0)
	ticket, err := w.writers[q.stream].Launch(host.Step{
		Label: "compute " + q.id.String(), Waits: q.ready,
		Reads:  []host.Span{{Chains: q.chains, To: q.computed, Table: table}},
		Writes: []host.Span{{Chains: q.chains, From: q.computed, To: n, Table: table}},
		States: w.stateUpdates(q, n, table),
	})
	if err == nil {
		q.ready, q.last = nil, ticket
	}
	return err
}

// stateUpdates are what a kernel that computes the tokens up to n does to working pages.
func (w *world) stateUpdates(q *sequence, n int, table host.Table) (updates []host.StateUpdate) {
	for p := range w.layouts {
		if w.layouts[p].HoldsStates() {
			updates = append(updates, host.StateUpdate{
				Pool: messages.PoolID(p), Page: table[p][0],
				From: host.StateAfter(q.chains, q.computed), To: host.StateAfter(q.chains, n),
			})
		}
	}
	return updates
}

// compute writes the KV of the tokens up to n and commits them.
func (w *world) compute(q *sequence, n int) error {
	if err := w.launch(q, n); err != nil {
		return err
	}
	return w.commit(q, n)
}

// commit commits the tokens up to n, whose kernel has been launched.
func (w *world) commit(q *sequence, n int) error {
	step := messages.CommitStep{Sequence: q.id, Computed: n, After: q.last}
	results, err := w.Commit(context.Background(), []messages.CommitStep{step})
	if err := outcome(results, err); err != nil {
		return err
	}
	q.computed = n
	q.ready = append(q.ready, results[0].Ready...)
	return nil
}

// append adds sampled tokens; none of them is computed.
func (w *world) append(q *sequence, tokens ...messages.Token) error {
	results, err := w.Append(context.Background(),
		[]messages.AppendStep{{Sequence: q.id, Tokens: tokens}})
	if err = outcome(results, err); err != nil {
		return err
	}
	for _, token := range tokens {
		q.chains = append(q.chains, q.chains[len(q.chains)-1].Next(token, messages.Cover{}))
	}
	q.ready = append(q.ready, results[0].Ready...)
	return nil
}

// fork makes a sequence that shares all pages but those of states.
func (w *world) fork(q *sequence) (*sequence, error) {
	results, err := w.Fork(context.Background(), []messages.ForkStep{{Sequence: q.id, Count: 1}})
	if err != nil {
		return nil, err
	}
	if err = results[0].Err; err != nil {
		return nil, err
	}
	q.ready = append(q.ready, results[0].Ready...)
	child := *q
	child.id, child.chains = results[0].Forks[0], append([]host.Chain(nil), q.chains...)
	child.ready = append([]gpu.Ticket(nil), q.ready...)
	return &child, nil
}

// release releases a sequence.
func (w *world) release(q *sequence) error {
	results, err := w.Release(context.Background(),
		[]messages.ReleaseStep{{Sequence: q.id, After: q.last}})
	return outcome(results, err)
}

// outcome joins the error of a call and the refusal of its only step.
func outcome(results []messages.StepResult, err error) error {
	if err != nil {
		return err
	}
	return results[0].Err
}
