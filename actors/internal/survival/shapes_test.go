package survival_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// store computes prompts and releases them, in batches.
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
			commits = append(commits, messages.CommitStep{Sequence: a.Sequence,
				Computed: len(requests[i].Tokens)})
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

// costs are what was done with a shape, and how long each thing took for each
// block of the shape, or, where it says so, at all.
type costs struct {
	t      *testing.T
	blocks int
	took   map[string]time.Duration
}

// each measures what concerns all blocks, in time of the processors: how long
// others have them meanwhile says nothing, and would strike the long ones.
func (c *costs) each(what string, do func()) {
	runtime.GC()
	start := processorTime()
	do()
	c.took[what] = processorTime() - start
	c.t.Logf("%7d blocks: %-45s %v", c.blocks, what, c.took[what].Round(time.Microsecond))
	c.took[what] = c.took[what] * 1000 / time.Duration(c.blocks)
}

// once times what should not depend on how many blocks there are: the best of
// some tries.
func (c *costs) once(what string, do func()) {
	best := time.Duration(math.MaxInt64)
	for range 20 {
		start := time.Now()
		do()
		best = min(best, time.Since(start))
	}
	c.t.Logf("%7d blocks: %-45s %v", c.blocks, what, best)
	c.took[what] = best
}

// growthAllowed is how much more a block may cost among thirty-two times as many:
// caches are missed, and the collector works. A cost that grew with the number
// of blocks would grow by thirty-two.
const growthAllowed = 12

// scales builds a hostile shape of a few thousand blocks and of many: nothing may
// cost more for each block of the larger one. Who else uses the processor spoils a
// measurement now and then, so one good one of each is enough.
func scales(t *testing.T, shape func(*costs)) {
	const tries = 5
	if watched {
		shape(&costs{t, many, map[string]time.Duration{}})
		return
	}
	fine, slow := map[string]bool{}, map[string]time.Duration{}
	for range tries {
		small := &costs{t, many / 32, map[string]time.Duration{}}
		large := &costs{t, many, map[string]time.Duration{}}
		shape(small)
		shape(large)
		for what, took := range large.took {
			if took <= growthAllowed*max(small.took[what], time.Microsecond) {
				fine[what] = true
				delete(slow, what)
			} else if !fine[what] {
				slow[what] = took
			}
		}
		if len(slow) == 0 {
			return
		}
		t.Logf("dearer than the small one's: %v", slow)
	}
	assert.Empty(t, slow)
}

// A block with as many others behind it as there are pages: all of them alike
// but for their last token.
func TestATreeAsWideAsItsPages(t *testing.T) {
	scales(t, func(c *costs) {
		n := c.blocks
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: n + 4}}})
		child := func(i int) []messages.Token {
			return append(run(0, 2*tpb-1), messages.Token(i))
		}
		var children [][]messages.Token
		for i := range n {
			children = append(children, child(i))
		}
		c.each("all children are stored", func() { r.store(children...) })
		c.once("one is found", func() { assert.Equal(t, 2*tpb, r.found(append(child(n-1), 0))) })
		c.once("the one stored last matches in part",
			func() { assert.Equal(t, 2*tpb-1, r.found(append(child(n+1), 0))) })
		c.once("an admission that copies a part",
			func() { r.release(r.admit(messages.AdmitRequest{Tokens: append(child(n+2), 0)}).Sequence) })
		c.each("new contents evict all", func() { r.release(r.admit(prompt(1<<19, n*tpb)).Sequence) })
		c.each("all are forgotten", func() {
			_, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 1)}})
			require.NoError(t, err)
		})
		assert.Zero(t, r.found(append(child(5), 0)))
		r.close()
	})
}

// Forgetting a wide tree at once forgets all of it.
func TestAWideTreeIsForgottenAtOnce(t *testing.T) {
	scales(t, func(c *costs) {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: c.blocks + 4}}})
		var children [][]messages.Token
		for i := range c.blocks {
			children = append(children, append(run(0, tpb), run(i, tpb)...))
		}
		r.store(children...)
		c.each("all children are forgotten", func() {
			n, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 1)}})
			require.NoError(t, err)
			assert.Equal(t, c.blocks+1, n)
		})
		r.close()
	})
}

// One prompt as long as the pool.
func TestATreeAsDeepAsItsPages(t *testing.T) { scales(t, deep) }

func deep(c *costs) {
	t, n := c.t, c.blocks
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: n + 4, Secondary: 10}}})
	deep := run(0, n*tpb)
	c.each("the prompt is stored", func() { r.store(deep) })
	c.each("it is found", func() { assert.Equal(t, n*tpb-1, r.found(deep)) })
	c.each("it is pinned and unpinned", func() {
		pin, err := r.Pin(ctx, messages.Prefix{Tokens: deep})
		require.NoError(t, err)
		assert.Equal(t, n*tpb, pin.Tokens)
		require.NoError(t, r.Unpin(ctx, pin.Pin))
	})
	c.each("it is forked and released", func() {
		a := r.admit(messages.AdmitRequest{Tokens: deep})
		r.compute(a.Sequence, len(deep))
		ids, err := r.ForkOne(ctx, a.Sequence, 2)
		require.NoError(t, err)
		r.release(append(ids, a.Sequence)...)
	})
	c.each("contents", func() {
		contents, err := r.Contents(ctx)
		require.NoError(t, err)
		assert.Len(t, contents, n)
	})
	c.each("all invariants", func() { require.NoError(t, r.Check(ctx)) })
	c.each("it is forgotten", func() {
		forgotten, err := r.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: deep[:1]}})
		require.NoError(t, err)
		assert.Equal(t, n, forgotten)
	})
	r.close()
}

// All prefixes of one prompt, the short ones first and the long ones first. They
// are as many tokens as the square of its length, and cost no more than that.
func TestAllPrefixesOfOnePrompt(t *testing.T) {
	for name, order := range map[string]func(i, longest int) int{
		"shortest first": func(i, _ int) int { return i + 1 },
		"longest first":  func(i, longest int) int { return longest - i },
	} {
		t.Run(name, func(t *testing.T) {
			scales(t, func(c *costs) {
				longest := int(math.Sqrt(float64(8 * c.blocks))) // so many blocks of four tokens in all
				r := newRig(t,
					setup{pages: []windows.PageCounts{{Primary: longest + longest/tpb, Secondary: 20}}})
				c.each("all are stored", func() {
					for i := range longest {
						r.store(run(0, order(i, longest)))
					}
				})
				require.NoError(t, r.Check(ctx))
				for _, n := range []int{2, 3, tpb, tpb + 1, longest / 2, longest} {
					assert.Equal(t, n-1, r.found(run(0, n)), "of %d tokens", n)
				}
				c.once("a short one is found", func() { assert.Equal(t, tpb, r.found(run(0, tpb+1))) })
				r.close()
			})
		})
	}
}

// Every block is stored behind each of two others, in parts and whole: sources of
// partial reuse abound and none may cross.
func TestABushOfParts(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 400, Secondary: 50}}})
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
