package oracle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// play is a small world with four tokens a block and the words that the tests
// need to talk to it.
type play struct {
	*oracle.Oracle
	t   *testing.T
	now time.Duration
}

// full is a pool with full attention.
func full(primary, secondary int) oracle.PoolConfig {
	return oracle.PoolConfig{Name: "wfullh1", KVHeads: 1, Layers: []int{0}, PageBytes: 128,
		Primary: primary, Secondary: secondary}
}

// limited is a pool with a window of 5.
func limited(primary, secondary int) oracle.PoolConfig {
	return oracle.PoolConfig{Name: "w5h1", Window: 5, KVHeads: 1, Layers: []int{1}, PageBytes: 128,
		Primary: primary, Secondary: secondary}
}

func world(t *testing.T, pools ...oracle.PoolConfig) *play {
	return worldWith(t, func(*oracle.Config) {}, pools...)
}

func worldWith(t *testing.T, change func(*oracle.Config), pools ...oracle.PoolConfig) *play {
	b := &play{t: t}
	c := oracle.Config{
		TokensPerBlock: 4, MaxSeqLen: 64, Pools: pools, SecondaryOffloadMinPriority: 35,
		OnboardBlocks: true,
		BlockReuse:    true, PartialReuse: true, CopyOnPartialReuse: true, EventLimit: 1000,
		Clock: func() time.Duration { return b.now },
	}
	change(&c)
	b.Oracle = oracle.New(c)
	t.Cleanup(func() { require.NoError(t, b.Check(context.Background())) })
	return b
}

// count gives n consecutive tokens.
func count(from, n int) (tokens []messages.Token) {
	for i := range n {
		tokens = append(tokens, messages.Token(from+i))
	}
	return tokens
}

func prefix(tokens []messages.Token) messages.Prefix { return messages.Prefix{Tokens: tokens} }

// admitOnly admits and does not commit.
func (b *play) admitOnly(r messages.AdmitRequest) messages.Admitted {
	b.t.Helper()
	a, err := b.Admit(context.Background(), r)
	require.NoError(b.t, err)
	return a
}

// prefill admits a prompt and commits all of it.
func (b *play) prefill(r messages.AdmitRequest) messages.Admitted {
	b.t.Helper()
	a := b.admitOnly(r)
	b.computed(a.Sequence, len(r.Tokens))
	return a
}

func (b *play) tokens(tokens []messages.Token) messages.Admitted {
	b.t.Helper()
	return b.prefill(messages.AdmitRequest{Tokens: tokens})
}

// computed commits as a part of the last request.
func (b *play) computed(id messages.SequenceID, n int) messages.StepResult {
	b.t.Helper()
	r, err := b.Commit(context.Background(), []messages.CommitStep{{Sequence: id, Computed: n}})
	require.NoError(b.t, err)
	require.NoError(b.t, r[0].Err)
	return r[0]
}

// add appends tokens and commits all before them.
func (b *play) add(id messages.SequenceID, tokens ...messages.Token) messages.StepResult {
	b.t.Helper()
	r, err := b.Append(context.Background(), []messages.AppendStep{{Sequence: id, Tokens: tokens}})
	require.NoError(b.t, err)
	return r[0]
}

func (b *play) releaseAll(ids ...messages.SequenceID) {
	b.t.Helper()
	for _, id := range ids {
		r, err := b.Release(context.Background(), []messages.ReleaseStep{{Sequence: id}})
		require.NoError(b.t, err)
		require.NoError(b.t, r[0].Err)
	}
}

// visit takes a prompt in, computes it and releases it.
func (b *play) visit(tokens []messages.Token) messages.Admitted {
	b.t.Helper()
	a := b.tokens(tokens)
	b.releaseAll(a.Sequence)
	return a
}

func (b *play) found(tokens []messages.Token) messages.Found {
	b.t.Helper()
	f, err := b.Lookup(context.Background(), prefix(tokens))
	require.NoError(b.t, err)
	return f
}

func (b *play) pool(i int) inspect.PoolStats {
	s, err := b.Stats(context.Background())
	require.NoError(b.t, err)
	return s.Pools[i]
}

// table is the table of a sequence's first beam in a pool.
func (b *play) table(id messages.SequenceID, pool int) []messages.PageID {
	t, err := b.TablesOf(context.Background(), id)
	require.NoError(b.t, err)
	return t[pool][0]
}

// refused requires an out_of_pages with these facts.
func (b *play) refused(err error, need, available int) {
	b.t.Helper()
	var r *messages.Refusal
	require.ErrorAs(b.t, err, &r)
	require.Equal(b.t, messages.ErrOutOfPages, r.Code)
	require.Equal(b.t, [2]int{need, available}, [2]int{r.Need, r.Available})
}

// code requires a refusal of a kind.
func (b *play) code(want messages.Code, err error) {
	b.t.Helper()
	var r *messages.Refusal
	require.ErrorAs(b.t, err, &r)
	require.Equal(b.t, want, r.Code)
}
