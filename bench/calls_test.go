package bench

import (
	"math/rand/v2"

	"github.com/kvactor/kvactor/messages"
)

// vocabulary is the number of different tokens, as large models have.
const vocabulary = 128_000

// dice are random numbers that are the same in each run.
func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// random makes a text of n tokens.
func random(r *rand.Rand, n int) []messages.Token {
	t := make([]messages.Token, n)
	for i := range t {
		t[i] = messages.Token(r.IntN(vocabulary))
	}
	return t
}

// calls are the calls of one sequence, from admission to release, in records that are reused.
type calls struct {
	admit   messages.Admit
	commit  messages.Commit
	release messages.Release
	after   messages.Ticket // of the kernel that computes the tokens
}

func newCalls(tokens []messages.Token) *calls {
	return &calls{
		admit:   messages.Admit{Requests: []messages.AdmitRequest{{Tokens: tokens}}},
		commit:  messages.Commit{Steps: make([]messages.CommitStep, 1)},
		release: messages.Release{Steps: make([]messages.ReleaseStep, 1)},
	}
}

// store admits the tokens, commits them and releases the sequence.
func (l *calls) store(do do) {
	do(&l.admit)
	admitted := &l.admit.Results[0]
	accept(admitted.Err)
	// With recurrent layers a commit ends at each checkpoint, else all of it is one.
	for _, position := range admitted.Checkpoints {
		l.compute(do, position)
	}
	l.compute(do, len(l.admit.Requests[0].Tokens))
	l.release.Steps[0] = messages.ReleaseStep{Sequence: admitted.Sequence}
	do(&l.release)
	accept(l.release.Results[0].Err)
}

// compute commits the first n tokens.
func (l *calls) compute(do do, n int) {
	l.commit.Steps[0] = messages.CommitStep{Sequence: l.admit.Results[0].Sequence, Computed: n,
		After: l.after}
	do(&l.commit)
	accept(l.commit.Results[0].Err)
}

// visit admits the tokens and releases the sequence, storing nothing.
func (l *calls) visit(do do) {
	do(&l.admit)
	admitted := &l.admit.Results[0]
	accept(admitted.Err)
	l.release.Steps[0] = messages.ReleaseStep{Sequence: admitted.Sequence, Discard: true}
	do(&l.release)
	accept(l.release.Results[0].Err)
}

// reused is how many tokens the last admission reused.
func (l *calls) reused() int { return l.admit.Results[0].ReusedTokens }
