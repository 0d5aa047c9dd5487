package coordinator_test

import (
	"fmt"
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

func request(tokens []messages.Token) messages.AdmitRequest {
	return messages.AdmitRequest{Tokens: tokens}
}

// refusal is the refusal that err is.
func refusal(t *gotesting.T, err error) *messages.Refusal {
	t.Helper()
	var r *messages.Refusal
	require.ErrorAs(t, err, &r)
	return r
}

// No admission of a batch may evict what another one has matched.
func TestABatchClaimsBeforeItTakes(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 6}}})
	w.store(run(0, 16)) // four blocks, and the first to go
	results, _ := w.admitBatch(request(run(500, 8)), request(run(0, 17)))
	require.NoError(t, results[0].Err)
	assert.Equal(t, refusals.OutOfPages("wfullh1", 1, 0).Error(), results[1].Err.Error())
	results, _ = w.admitBatch(request(run(0, 17)))
	require.Error(t, results[0].Err, "the two pages are still the first one's")
}

// Those decided first get the pages; a refused one gives its claims back.
func TestABatchIsCheckedInOrder(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 5}}})
	results, sequences := w.admitBatch(request(run(0, 9)), request(run(100, 12)), request(run(200, 8)),
		request(run(300, 1)))
	require.NoError(t, results[0].Err)
	assert.Equal(t, "pool wfullh1 needs 3 pages, 2 available", results[1].Err.Error())
	require.NoError(t, results[2].Err)
	assert.Equal(t, "pool wfullh1 needs 1 pages, 0 available", results[3].Err.Error())
	w.prefill(sequences[0])
	w.prefill(sequences[2])
	w.release(sequences[0], sequences[2])
	w.assertCounts(0, 0, 5, 0)
}

func TestARefusalInABatchHasNoNumbersOfItsOwn(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 3}}})
	results, _ := w.admitBatch(
		messages.AdmitRequest{}, request(run(0, full+1)), messages.AdmitRequest{Tokens: run(0, 4),
			ChunkTokens: 3}, request(run(0, 4)),
		messages.AdmitRequest{Tokens: run(0, 4), BeamWidth: -1})
	assert.ErrorIs(t, results[0].Err, messages.ErrBadRequest)
	assert.ErrorIs(t, results[1].Err, messages.ErrTooLong)
	assert.ErrorIs(t, results[2].Err, messages.ErrBadRequest)
	assert.NoError(t, results[3].Err)
	assert.ErrorIs(t, results[4].Err, messages.ErrBadRequest)
	for i := range results {
		if results[i].Err != nil {
			assert.Zero(t, results[i].Sequence)
			assert.Empty(t, results[i].Tables)
			assert.Empty(t, results[i].Reuse)
		}
	}
}

// The first pool that lacks pages is named, in the order of the pools.
func TestTheFirstPoolThatLacksPagesIsNamed(t *gotesting.T) {
	pages := func(small, large int) []windows.PageCounts {
		return []windows.PageCounts{{Primary: small}, {Primary: large}}
	}
	for _, c := range []struct {
		name  string
		pages []windows.PageCounts
		want  messages.Refusal
	}{
		{"limited", pages(3, 9), messages.Refusal{Pool: "w8h1", Need: 5, Available: 3}},
		{"full", pages(9, 3), messages.Refusal{Pool: "wfullh1", Need: 5, Available: 3}},
		{"both", pages(4, 2), messages.Refusal{Pool: "w8h1", Need: 5, Available: 4}},
	} {
		t.Run(c.name, func(t *gotesting.T) {
			w := newWorld(t, setup{windows: []int{full, 8}, pages: c.pages})
			_, _, err := w.tryAdmit(request(run(0, 20)))
			r := refusal(t, err)
			assert.Equal(t, c.want, messages.Refusal{Pool: r.Pool, Need: r.Need, Available: r.Available})
			assert.ErrorIs(t, err, messages.ErrOutOfPages)
		})
	}
}

// A block that two admissions want in part is taken over by none: both copy.
func TestTwoThatWantABlockInPartCopyIt(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	w.store(run(0, 6)) // the second block is stored in part: 2 tokens
	results, sequences := w.admitBatch(request(run(0, 8)), request(run(0, 7)))
	for i := range results {
		require.NoError(t, results[i].Err)
		assert.Equal(t, 6, results[i].ReusedTokens)
		assert.Equal(t, messages.PoolReuse{Full: 1, Partial: 1, PartialReuse: messages.PartialCopy},
			results[i].Reuse[0])
	}
	assert.Equal(t, 4, w.memory.copies[offloader.Duplicate], "two tokens of K and of V, twice")
	w.prefill(sequences[0])
	w.prefill(sequences[1])
	w.release(sequences...)

	w.do(&messages.Reset{})
	w.store(run(0, 6))
	a, _ := w.admit(run(0, 8))
	assert.Equal(t, messages.PartialTakeover, a.Reuse[0].PartialReuse, "alone it takes it over")
}

// Without copying, the first that wants a block in part takes it over, unless
// another wants it whole; the others go without.
func TestWithoutCopyingOneTakesOver(t *gotesting.T) {
	noCopies := setup{pages: []windows.PageCounts{{Primary: 12}},
		change: func(c *windows.Config) { c.CopyOnPartialReuse = false }}
	w := newWorld(t, noCopies)
	w.store(run(0, 8))
	changed := append(run(0, 6), 900, 901, 902)
	results, _ := w.admitBatch(request(changed), request(changed))
	assert.Equal(t, []int{6, 4}, []int{results[0].ReusedTokens, results[1].ReusedTokens})
	assert.Equal(t, []messages.PartialReuse{messages.PartialTakeover, messages.PartialNone},
		[]messages.PartialReuse{results[0].Reuse[0].PartialReuse, results[1].Reuse[0].PartialReuse})

	w = newWorld(t, noCopies)
	w.store(run(0, 8))
	results, _ = w.admitBatch(request(changed), request(run(0, 9)))
	assert.Equal(t, []int{4, 8}, []int{results[0].ReusedTokens, results[1].ReusedTokens})
}

// The pages for copies are taken before all others, and no source is a victim
// for them; then the sources may be.
func TestCopiesComeBeforeOtherPages(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
	w.store(run(0, 8))
	w.store(run(100, 4))
	// One page is free. The copy takes it; the two further pages are taken from
	// the oldest contents, the source's among them: it is free to go by then.
	a, l := w.admit(append(run(0, 6), 900, 901, 902, 903))
	assert.Equal(t, 6, a.ReusedTokens)
	assert.Equal(t, messages.PartialCopy, a.Reuse[0].PartialReuse)
	w.prefill(l)
}

// If no page but a source is there for the copy, the admission goes without
// partial reuse.
func TestNoPageForTheCopyMeansNoPartialReuse(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 2}}})
	w.store(run(0, 8))
	a, l := w.admit(append(run(0, 6), 900))
	assert.Equal(t, 4, a.ReusedTokens)
	assert.Equal(t, messages.PartialNone, a.Reuse[0].PartialReuse)
	w.prefill(l)
}

// A source that a refused item had claimed whole is cached again, so no page
// is there for a copy of it.
func TestARefusalMakesASourceOfACopyCachedAgain(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
	w.start(run(700, 12))
	w.store(run(0, 4))
	w.assertCounts(0, 3, 1, 0)
	results, _ := w.admitBatch(request(run(0, 9)), request(run(0, 3)))
	require.ErrorIs(t, results[0].Err, messages.ErrOutOfPages)
	require.NoError(t, results[1].Err)
	assert.Zero(t, results[1].ReusedTokens)
}

// Nor is the page of a takeover there for a copy, also when a reserve covers it.
func TestAPageThatIsTakenOverIsNoPageForACopy(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 5}, {Primary: 9}}})
	w.start(run(700, 8))
	w.store(run(200, 5)) // a whole block, and one of one token
	w.store(run(300, 1)) // one of one token
	w.assertCounts(0, 2, 3, 0)
	results, sequences := w.admitBatch(chunked(run(300, 2), 12), chunked(run(200, 6), 12),
		request(run(200, 7)))
	require.NoError(t, results[0].Err)
	assert.Equal(t, messages.PartialTakeover, results[0].Reuse[0].PartialReuse)
	for i, l := range sequences {
		if results[i].Err == nil {
			assert.NotEqual(t, messages.PartialCopy, results[i].Reuse[0].PartialReuse)
			w.prefill(l)
		}
	}
}

// What two admissions of a batch want from host memory is brought in once.
func TestABatchOnboardsABlockOnce(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 6, Secondary: 4}}})
	w.store(run(0, 8))
	w.release(w.start(run(500, 24)))
	require.Equal(t, messages.Found{MatchedTokens: 8, SecondaryTokens: 8},
		w.lookup(messages.Prefix{Tokens: run(0, 9)}))
	results, sequences := w.admitBatch(request(run(0, 9)), request(append(run(0, 8), 900)))
	for i := range results {
		require.NoError(t, results[i].Err)
		assert.Equal(t, 8, results[i].ReusedTokens)
	}
	assert.Equal(t, []int{2, 0}, []int{results[0].Reuse[0].Onboarded, results[1].Reuse[0].Onboarded})
	assert.Equal(t, 2, results[1].Reuse[0].Full)
	assert.Equal(t, results[0].Tables[0][0][:2], results[1].Tables[0][0][:2], "they share the pages")
	assert.Equal(t, 2, w.memory.copies[offloader.Onboard])
	w.prefill(sequences[0])
	w.prefill(sequences[1])
	w.assertCounts(0, 4, 2, 0)
}

// The source of a partial copy leaves its use also when it lies in host memory and
// another prompt of the batch brings it to the device.
func TestASourceThatAnotherBringsInLeavesItsUse(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 12, Secondary: 12}}})
	w.store(run(0, 8))
	w.store(run(100, 48)) // the first is in host memory now
	found := w.lookup(messages.Prefix{Tokens: run(0, 9)})
	require.Equal(t, 8, found.SecondaryTokens)
	results, sequences := w.admitBatch(request(append(run(0, 8), run(50, 12)...)),
		request(append(run(0, 6), 900)))
	require.NoError(t, results[0].Err)
	require.NoError(t, results[1].Err)
	require.Equal(t, messages.PartialCopy, results[1].Reuse[0].PartialReuse)
	first, second := results[0].Tables[0][0][0], results[0].Tables[0][0][1]
	w.commitTo(sequences[0], 20) // leaves the window: a part of the admission, so it leaves that use
	require.Equal(t, []messages.PageID{messages.NoPage, messages.NoPage},
		w.tables(sequences[0].id)[0][0][:2])
	use := func(page messages.PageID) protocol.Use {
		look := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Inspect,
			Pages: []messages.PageID{page}}}}
		w.Pools[0].Do(&look)
		return look.Ops[0].Shares[0].Use
	}
	assert.Greater(t, use(second), use(first),
		"the second block was the source of a copy after that\n%s", w.Pools[0])
	w.release(sequences...)
}

// Tokens that are matched are not looked at one by one, and the others only when the tree has
// answered. A host sees no difference: an invalid token is refused wherever it is, before all
// that is wrong with the prompt otherwise, and its prompt leaves no trace.
func TestAnInvalidTokenIsRefusedWhereverItIs(t *gotesting.T) {
	for _, reuse := range []bool{true, false} {
		w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 40}},
			change: func(c *windows.Config) { c.EnableBlockReuse = reuse }})
		w.store(run(0, 16))
		before := w.counts()
		for at := range 40 {
			wrong := run(0, 40)
			wrong[at] = -1 - messages.Token(at)
			bad := messages.AdmitRequest{Tokens: wrong, BeamWidth: -(at % 3)}
			results, sequences := w.admitBatch(request(run(0, 21)), bad, request(run(100, 9)))
			require.NoError(t, results[0].Err)
			require.NoError(t, results[2].Err)
			assert.Equal(t, fmt.Sprintf("token %d at position %d is not in 0 … 2³¹−1", -1-at, at),
				refusal(t, results[1].Err).Message)
			assert.Zero(t, results[1].Sequence)
			assert.Empty(t, results[1].Tables)
			w.discard(sequences[0])
			w.discard(sequences[2])

			results, _ = w.admitBatch(bad)
			assert.Equal(t, fmt.Sprintf("token %d at position %d is not in 0 … 2³¹−1", -1-at, at),
				refusal(t, results[0].Err).Message)
			assert.Equal(t, before, w.counts())
		}
		wrong := run(0, full+1)
		wrong[full] = -7
		results, _ := w.admitBatch(request(wrong))
		assert.Equal(t, fmt.Sprintf("token -7 at position %d is not in 0 … 2³¹−1", full),
			refusal(t, results[0].Err).Message)
	}
}

// The tree writes symbols, which are negative, in place of tokens that an item covers. A host
// that sends the number of a symbol must not find the blocks of the item.
func TestANumberOfASymbolIsNoToken(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	item := messages.MultimodalItem{Start: 4, Length: 4, Hash: [32]byte{1}}
	_, l := w.admitAs(messages.AdmitRequest{Tokens: run(0, 13),
		Multimodal: []messages.MultimodalItem{item}})
	w.prefill(l)
	wrong := run(0, 13)
	for i := range 4 {
		wrong[4+i] = -1 - messages.Token(i)
	}
	results, _ := w.admitBatch(request(wrong))
	assert.Equal(t, "token -1 at position 4 is not in 0 … 2³¹−1", refusal(t, results[0].Err).Message)
}
