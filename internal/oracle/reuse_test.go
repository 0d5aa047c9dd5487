package oracle_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
)

var ctx = context.Background()

func TestTheLastTokenOfACachedPromptIsComputed(t *testing.T) {
	b := world(t, full(6, 0))
	b.visit(count(1, 8))
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 8)})
	require.Equal(t, 7, a.ReusedTokens)
	require.Equal(t, messages.ReasonHit, a.MissReason)
	require.Equal(t, []messages.PoolReuse{{Full: 1, Partial: 1, PartialReuse: messages.PartialCopy}},
		a.Reuse)
	require.EqualValues(t, 3, b.pool(0).AllocatedPages)
	require.EqualValues(t, 2, b.pool(0).Missed)
}

func TestPartialReuse(t *testing.T) {
	stored := append(count(1, 4), 5, 6)          // the second block in part
	longer := append(count(1, 4), 5, 6, 7, 8, 9) // holds all of it
	other := append(count(1, 4), 5, 9, 9, 9)     // only a part
	tests := []struct {
		name    string
		running bool // the one who stored it still runs
		prompt  []messages.Token
		noCopy  bool
		reused  int
		partial messages.PartialReuse
		left    int // of the stored tokens, for another
	}{
		{"all stored tokens: taken over", false, longer, false, 6, messages.PartialTakeover, 4},
		{"not all of them: copied", false, other, false, 5, messages.PartialCopy, 6},
		{"without copying: taken over", false, other, true, 5, messages.PartialTakeover, 4},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			b := worldWith(t, func(c *oracle.Config) { c.CopyOnPartialReuse = !x.noCopy }, full(8, 0))
			b.visit(stored)
			a := b.admitOnly(messages.AdmitRequest{Tokens: x.prompt})
			require.Equal(t, x.reused, a.ReusedTokens)
			require.Equal(t, x.partial, a.Reuse[0].PartialReuse)
			require.Equal(t, x.left, b.found(append(stored, 99)).MatchedTokens)
		})
	}
}

func TestWithoutCopyingABlockInUseIsNotReusedInPart(t *testing.T) {
	b := worldWith(t, func(c *oracle.Config) { c.CopyOnPartialReuse = false }, full(8, 0))
	b.tokens(count(1, 8)) // runs on
	a := b.admitOnly(messages.AdmitRequest{Tokens: append(count(1, 6), 99)})
	require.Equal(t, 4, a.ReusedTokens)
	require.Equal(t, messages.PartialNone, a.Reuse[0].PartialReuse)
	require.Equal(t, messages.ReasonWindowHole, a.MissReason,
		"no pool lacks anything, and yet less than the reach is reused")
}

func TestTheSourceIsTheBlockLastStoredOrClaimed(t *testing.T) {
	b := world(t, full(12, 0))
	first, second := append(count(1, 4), 5, 6, 7, 8), append(count(1, 4), 5, 6, 9, 9)
	b.visit(first)
	b.visit(second)
	probe := append(count(1, 4), 5, 6, 70)
	b.releaseAll(b.admitOnly(messages.AdmitRequest{Tokens: probe}).Sequence)
	// The copy gave the second a later use, so the first goes before it.
	b.visit(count(100, 36)) // one page more than are free
	require.Equal(t, 4, shareOf(b, first))
	require.Equal(t, 8, shareOf(b, second))
}

// shareOf is how much of the tokens a longer prompt would reuse.
func shareOf(b *play, tokens []messages.Token) int {
	return b.found(append(append([]messages.Token(nil), tokens...), 77)).MatchedTokens / 4 * 4
}

func TestACopyNeedsAPageThatIsNoSource(t *testing.T) {
	b := world(t, full(2, 0))
	b.visit(count(1, 8))
	require.Equal(t, 4, b.found(append(count(1, 6), 99)).MatchedTokens)
	a := b.admitOnly(messages.AdmitRequest{Tokens: append(count(1, 6), 99)})
	require.Equal(t, 4, a.ReusedTokens, "the only other page is claimed whole")
	require.Equal(t, messages.PartialNone, a.Reuse[0].PartialReuse)
	require.EqualValues(t, 1, b.pool(0).Dropped)
}

func TestASourceMayBeAVictimOfItsOwnAdmission(t *testing.T) {
	b := world(t, full(3, 0))
	b.visit(count(1, 8))
	// One copy and one fresh page: the free page, then the source's.
	a := b.admitOnly(messages.AdmitRequest{Tokens: append(count(1, 6), 99, 99, 99)})
	require.Equal(t, 6, a.ReusedTokens)
	require.Equal(t, messages.PartialCopy, a.Reuse[0].PartialReuse)
	require.EqualValues(t, 1, b.pool(0).Evicted)
}

func TestABatchTakesNothingOverThatTwoWant(t *testing.T) {
	b := world(t, full(10, 0))
	b.visit(append(count(1, 4), 5, 6))
	prompt := append(count(1, 4), 5, 6, 7, 8, 9)
	all, err := b.AdmitBatch(ctx, []messages.AdmitRequest{{Tokens: prompt}, {Tokens: prompt}})
	require.NoError(t, err)
	for _, a := range all {
		require.Equal(t, messages.PartialCopy, a.Reuse[0].PartialReuse)
	}
	require.Equal(t, all[0].Tables[0][0][0], all[1].Tables[0][0][0])
	require.NotEqual(t, all[0].Tables[0][0][1], all[1].Tables[0][0][1])
}

func TestABatchWithoutCopyingLetsTheFirstTakeOver(t *testing.T) {
	b := worldWith(t, func(c *oracle.Config) { c.CopyOnPartialReuse = false }, full(12, 0))
	b.visit(count(1, 8))
	part := append(count(1, 6), 99, 99, 99)
	all, err := b.AdmitBatch(ctx, []messages.AdmitRequest{{Tokens: part}, {Tokens: part}})
	require.NoError(t, err)
	require.Equal(t, []int{6, 4}, []int{all[0].ReusedTokens, all[1].ReusedTokens})

	b = worldWith(t, func(c *oracle.Config) { c.CopyOnPartialReuse = false }, full(12, 0))
	b.visit(count(1, 8))
	all, err = b.AdmitBatch(ctx, []messages.AdmitRequest{{Tokens: part}, {Tokens: count(1, 9)}})
	require.NoError(t, err)
	require.Equal(t, []int{4, 8}, []int{all[0].ReusedTokens, all[1].ReusedTokens},
		"another wants it whole")
}

func TestABatchClaimsBeforeItTakes(t *testing.T) {
	b := world(t, full(4, 0))
	b.visit(count(1, 8))
	all, err := b.AdmitBatch(ctx, []messages.AdmitRequest{
		{Tokens: count(100, 12)}, // would evict what the other matches: refused
		{Tokens: count(1, 9)},    // claims two, takes one
		{Tokens: count(200, 4)},  // fits
		{Tokens: count(300, 4)},  // nothing is left
	})
	require.NoError(t, err)
	b.refused(all[0].Err, 3, 2)
	require.Equal(t, 8, all[1].ReusedTokens)
	require.NoError(t, all[2].Err)
	b.refused(all[3].Err, 1, 0)
}

func TestNamespacesDoNotMeet(t *testing.T) {
	b := world(t, full(12, 0))
	item := func(hash byte, start int) []messages.MultimodalItem {
		return []messages.MultimodalItem{{Hash: [32]byte{hash}, Start: start, Length: 2}}
	}
	prompt := count(1, 9)
	b.releaseAll(b.prefill(messages.AdmitRequest{Tokens: prompt, Multimodal: item(1, 4)}).Sequence)
	tests := []struct {
		name string
		q    messages.Prefix
		want int
	}{
		{"the same", messages.Prefix{Tokens: prompt, Multimodal: item(1, 4)}, 8},
		{"salt", messages.Prefix{Tokens: prompt, Multimodal: item(1, 4),
			Namespace: messages.Namespace{Salt: "x"}}, 0},
		{"empty LoRA", messages.Prefix{Tokens: prompt, Multimodal: item(1, 4),
			Namespace: messages.Namespace{HasLoRA: true}}, 0},
		{"other item", messages.Prefix{Tokens: prompt, Multimodal: item(2, 4)}, 4},
		{"item elsewhere", messages.Prefix{Tokens: prompt, Multimodal: item(1, 5)}, 4},
		{"item that begins before", messages.Prefix{Tokens: prompt, Multimodal: item(1, 3)}, 3},
		{"no item", messages.Prefix{Tokens: prompt}, 4},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			f, err := b.Lookup(ctx, x.q)
			require.NoError(t, err)
			require.Equal(t, x.want, f.MatchedTokens)
		})
	}
}

func TestACopyMakesItsSourceTheOneClaimedLast(t *testing.T) {
	b := world(t, full(12, 0))
	first, second := append(count(1, 4), 5, 6, 7, 8), append(count(1, 4), 5, 6, 9, 9)
	b.visit(first)
	b.visit(second)
	for _, rest := range [][]messages.Token{{7, 70}, {80}} { // of the first only; of either
		a := b.admitOnly(messages.AdmitRequest{Tokens: append(append(count(1, 4), 5, 6), rest...)})
		_, err := b.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
		require.NoError(t, err)
	}
	b.visit(count(100, 40)) // one page more than are free
	require.Equal(t, 8, shareOf(b, first))
	require.Equal(t, 4, shareOf(b, second))
}
