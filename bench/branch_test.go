package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

// The workload of conversations over one system prompt, with a model that has recurrent
// layers: where states are kept decides which prompts find one.
const (
	conversations = 64
	turns         = 3
	systemTokens  = 1000 // 62 blocks and a half
)

// dialogue is one conversation: its text so far, and what comes next.
type dialogue struct{ text, user, answer []messages.Token }

// turn draws the next user text and its answer.
func (d *dialogue) turn(r *rand.Rand) {
	d.user, d.answer = random(r, 40+r.IntN(60)), random(r, 30+r.IntN(50))
}

// ask is a cache of states that serves a prompt and its answer. It returns how many
// tokens of the prompt were not computed.
type ask func(prompt, answer []messages.Token) (reused int)

// playDialogues asks the first turns of all conversations, then the second ones, and so on.
func playDialogues(ask ask) (reused []int) {
	r := dice(5)
	system := random(r, systemTokens)
	var all []*dialogue
	for range conversations {
		all = append(all, &dialogue{text: slices.Clone(system)})
	}
	for range turns {
		for _, d := range all {
			d.turn(r)
			prompt := slices.Concat(d.text, d.user)
			reused = append(reused, ask(prompt, d.answer))
			d.text = append(prompt, d.answer...)
		}
	}
	return reused
}

// engineStates asks an engine with room for everything.
func engineStates(b testing.TB) ask {
	s := full(64 * 1024)
	s.states = 4 * conversations * turns
	do := s.actors(b)
	return func(prompt, answer []messages.Token) int {
		l := newCalls(prompt)
		do(&l.admit)
		admitted := &l.admit.Results[0]
		accept(admitted.Err)
		for _, position := range append(slices.Clone(admitted.Checkpoints), len(prompt)) {
			l.compute(do, position)
		}
		// The last sampled token is in no page.
		grow := &messages.Append{Steps: []messages.AppendStep{{Sequence: admitted.Sequence,
			Tokens: answer, Computed: len(prompt) + len(answer) - 1}}}
		do(grow)
		accept(grow.Results[0].Err)
		l.release.Steps[0] = messages.ReleaseStep{Sequence: admitted.Sequence}
		do(&l.release)
		accept(l.release.Results[0].Err)
		return admitted.ReusedTokens
	}
}

// peerStates is a cache that never evicts and keeps a state after some prefixes of each
// sequence only: rule gives their lengths for a prompt and the computed tokens behind it.
func peerStates(rule func(prompt, computed int) []int) ask {
	states := map[string]bool{}
	key := func(tokens []messages.Token) string {
		return string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))),
			len(tokens)*int(unsafe.Sizeof(tokens[0]))))
	}
	return func(prompt, answer []messages.Token) (reused int) {
		for n := len(prompt) - 1; n > 0 && reused == 0; n-- {
			if states[key(prompt[:n])] {
				reused = n
			}
		}
		text := slices.Concat(prompt, answer)
		for _, n := range rule(len(prompt), len(text)-1) {
			states[key(text[:n])] = true
		}
		return reused
	}
}

// lastBoundary is vLLM's rule with mamba_cache_mode align: a state at the last block
// boundary of a prompt, and at the last of what is generated.
func lastBoundary(prompt, computed int) []int {
	return []int{(prompt - 1) / tokensPerBlock * tokensPerBlock,
		computed / tokensPerBlock * tokensPerBlock}
}

// insertedEnd is SGLang's rule: a state at the end of what a sequence inserts into the
// tree, its prompt and, when it has ended, all of it. A node that is split gives none.
func insertedEnd(prompt, computed int) []int { return []int{prompt, computed} }

// branches are the three caches on the same trace.
func branches(b testing.TB) (names []string, reused [][]int) {
	names = []string{"engine", "last-boundary", "inserted-end"}
	for _, ask := range []ask{engineStates(b), peerStates(lastBoundary), peerStates(insertedEnd)} {
		reused = append(reused, playDialogues(ask))
	}
	return names, reused
}

// hits counts the prompts that reused something, and what they reused.
func hits(reused []int) (prompts, tokens int) {
	for _, n := range reused {
		tokens += n
		if n > 0 {
			prompts++
		}
	}
	return prompts, tokens
}

// The third conversation already hits where it leaves the system prompt. With the rules
// of the peers no first turn ever does.
func TestTheThirdConversationHits(t *testing.T) {
	names, reused := branches(t)
	boundary := systemTokens / tokensPerBlock * tokensPerBlock
	for i, rows := range reused {
		prompts, tokens := hits(rows)
		t.Logf("%s: %d of %d prompts hit, %d tokens reused", names[i], prompts, len(rows), tokens)
		first := slices.Repeat([]int{0}, conversations)
		if i == 0 {
			for c := 2; c < conversations; c++ {
				first[c] = boundary
			}
		}
		assert.Equal(t, first, rows[:conversations], names[i])
	}
}

// BenchmarkBranches reports the hits of the three caches, of 192 prompts.
func BenchmarkBranches(b *testing.B) {
	for b.Loop() {
		names, reused := branches(b)
		for i, rows := range reused {
			prompts, tokens := hits(rows)
			b.ReportMetric(float64(prompts), fmt.Sprintf("hits-%s", names[i]))
			b.ReportMetric(float64(tokens), fmt.Sprintf("tokens-%s", names[i]))
		}
	}
	b.ReportMetric(0, "ns/op")
}
