package survival_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// store computes prompts and lets them go, in batches.
func (r *rig) store(prompts ...[]messages.Token) {
	r.t.Helper()
	for len(prompts) > 0 {
		n := min(len(prompts), 50)
		var requests []messages.AdmitRequest
		for _, p := range prompts[:n] {
			requests = append(requests, messages.AdmitRequest{Tokens: p})
		}
		prompts = prompts[n:]
		results, err := r.AdmitBatch(ctx, requests)
		require.NoError(r.t, err)
		var commits []messages.CommitStep
		var releases []messages.ReleaseStep
		for i, a := range results {
			require.NoError(r.t, a.Err)
			commits = append(commits, messages.CommitStep{Sequence: a.Sequence, Computed: len(requests[i].Tokens), Continues: true})
			releases = append(releases, messages.ReleaseStep{Sequence: a.Sequence})
		}
		for _, steps := range []func() ([]messages.StepResult, error){
			func() ([]messages.StepResult, error) { return r.Commit(ctx, commits) },
			func() ([]messages.StepResult, error) { return r.Release(ctx, releases) },
		} {
			done, err := steps()
			require.NoError(r.t, err)
			for _, s := range done {
				require.NoError(r.t, s.Err)
			}
		}
	}
}

// found is what a lookup of a prompt matches.
func (r *rig) found(tokens []messages.Token) int {
	r.t.Helper()
	f, err := r.Lookup(ctx, messages.Prefix{Tokens: tokens})
	require.NoError(r.t, err)
	return f.MatchedTokens
}

// took prints how long something took: a hostile shape must not make it slow.
func took(t *testing.T, what string, do func()) {
	t.Helper()
	start := time.Now()
	do()
	t.Logf("%-40s %v", what, time.Since(start).Round(time.Microsecond))
}

// A block with as many others behind it as there are pages: all of them alike
// but for their last token.
func TestATreeAsWideAsItsPages(t *testing.T) {
	r := newRig(t, setup{pages: []windows.Counts{{Primary: many + 4}}})
	child := func(i int) []messages.Token {
		return append(run(0, 2*tpb-1), messages.Token(i))
	}
	var children [][]messages.Token
	for i := range many {
		children = append(children, child(i))
	}
	took(t, "all children are stored", func() { r.store(children...) })
	took(t, "one is found", func() { assert.Equal(t, 2*tpb, r.found(append(child(many-1), 0))) })
	took(t, "the one stored last matches in part", func() { assert.Equal(t, 2*tpb-1, r.found(append(child(many+1), 0))) })
	took(t, "an admission that copies a part", func() { r.release(r.admit(messages.AdmitRequest{Tokens: append(child(many+2), 0)}).Sequence) })
	took(t, "new contents evict all", func() { r.release(r.admit(prompt(1<<19, many*tpb)).Sequence) })
	took(t, "all are forgotten", func() {
		_, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 1)}})
		require.NoError(t, err)
	})
	assert.Zero(t, r.found(append(child(5), 0)))
	r.close()
}

// Forgetting a wide tree at once forgets all of it.
func TestAWideTreeIsForgottenAtOnce(t *testing.T) {
	r := newRig(t, setup{pages: []windows.Counts{{Primary: many + 4}}})
	var children [][]messages.Token
	for i := range many {
		children = append(children, append(run(0, tpb), run(i, tpb)...))
	}
	r.store(children...)
	took(t, "all children are forgotten", func() {
		n, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 1)}})
		require.NoError(t, err)
		assert.Equal(t, many+1, n)
	})
	r.close()
}

// One prompt as long as the pool.
func TestATreeAsDeepAsItsPages(t *testing.T) {
	r := newRig(t, setup{pages: []windows.Counts{{Primary: many + 4, Secondary: 10}}})
	deep := run(0, many*tpb)
	took(t, "the prompt is stored", func() { r.store(deep) })
	took(t, "it is found", func() { assert.Equal(t, many*tpb-1, r.found(deep)) })
	took(t, "it is pinned and unpinned", func() {
		pin, err := r.Pin(ctx, messages.Prefix{Tokens: deep})
		require.NoError(t, err)
		assert.Equal(t, many*tpb, pin.Tokens)
		require.NoError(t, r.Unpin(ctx, pin.Pin))
	})
	took(t, "it is forked and let go", func() {
		a := r.admit(messages.AdmitRequest{Tokens: deep})
		r.compute(a.Sequence, len(deep))
		ids, err := r.Fork(ctx, a.Sequence, 2)
		require.NoError(t, err)
		r.release(append(ids, a.Sequence)...)
	})
	took(t, "contents", func() {
		contents, err := r.Contents(ctx)
		require.NoError(t, err)
		assert.Len(t, contents, many)
	})
	took(t, "all invariants", func() { require.NoError(t, r.Check(ctx)) })
	took(t, "it is forgotten", func() {
		n, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: deep[:1]}})
		require.NoError(t, err)
		assert.Equal(t, many, n)
	})
	r.close()
}

// All prefixes of one prompt, the short ones first and the long ones first.
func TestAllPrefixesOfOnePrompt(t *testing.T) {
	const longest = 600
	for name, order := range map[string]func(i int) int{
		"shortest first": func(i int) int { return i + 1 },
		"longest first":  func(i int) int { return longest - i },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: []windows.Counts{{Primary: longest + longest/tpb, Secondary: 20}}})
			for i := range longest {
				r.store(run(0, order(i)))
			}
			require.NoError(t, r.Check(ctx))
			for _, n := range []int{2, 3, tpb, tpb + 1, longest / 2, longest} {
				assert.Equal(t, n-1, r.found(run(0, n)), "of %d tokens", n)
			}
			r.close()
		})
	}
}

// Every block is stored behind each of two others, in parts and whole: sources of
// partial reuse abound and none may cross.
func TestABushOfParts(t *testing.T) {
	r := newRig(t, setup{pages: []windows.Counts{{Primary: 400, Secondary: 50}}})
	var prompts [][]messages.Token
	for i := range 3 * 3 * 3 * 3 * 3 * 3 {
		var p []messages.Token
		for n := i; n > 0; n /= 3 {
			p = append(p, messages.Token(n%3))
		}
		if len(p) > 0 {
			prompts = append(prompts, p)
		}
	}
	for _, p := range prompts {
		r.store(p)
	}
	require.NoError(t, r.Check(ctx))
	for _, p := range prompts[len(prompts)-50:] {
		assert.Equal(t, len(p)-1, r.found(p))
	}
	r.close()
}
