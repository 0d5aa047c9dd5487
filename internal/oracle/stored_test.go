package oracle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

func (b *play) pin(tokens []messages.Token) messages.Pinned {
	b.t.Helper()
	p, err := b.Pin(ctx, prefix(tokens))
	require.NoError(b.t, err)
	return p
}

func TestAPinHoldsWholeBlocksInEitherTier(t *testing.T) {
	b := world(t, full(4, 2))
	b.visit(count(1, 10))
	require.Equal(t, 8, b.pin(count(1, 8)).Tokens, "all the tokens, not all but one")
	p := b.pin(count(1, 10))
	require.Equal(t, 8, p.Tokens)
	require.Equal(t, 2, b.pool(0).Primary.Used)
	_, err := b.Admit(ctx, messages.AdmitRequest{Tokens: count(50, 12)})
	b.refused(err, 3, 2)

	c := world(t, full(2, 1))
	c.visit(count(1, 4))
	c.visit(count(21, 8))
	q := c.pin(count(1, 4))
	require.Equal(t, 1, c.pool(0).Secondary.Used)
	c.lodge(count(31, 8), keep(90, 0)) // the pinned host page is no victim
	require.EqualValues(t, 2, c.pool(0).Dropped)
	_, err = c.Prefetch(ctx, prefix(count(1, 4)))
	require.NoError(t, err)
	require.Equal(t, 1, c.pool(0).Primary.Used)
	require.Equal(t, inspect.TierPages{Total: 1, Cached: 1}, c.pool(0).Secondary)
	require.NoError(t, c.Unpin(ctx, q.Pin))
	c.code(messages.ErrUnknownPin, c.Unpin(ctx, q.Pin))
	require.Equal(t, 0, c.pool(0).Primary.Used)
}

func TestUnpinIsAUse(t *testing.T) {
	b := world(t, full(4, 0))
	b.visit(count(1, 4))
	p := b.pin(count(1, 4))
	b.visit(count(11, 4))
	require.NoError(t, b.Unpin(ctx, p.Pin))
	b.visit(count(21, 12))
	require.Equal(t, 4, shareOf(b, count(1, 4)))
	require.Equal(t, 0, shareOf(b, count(11, 4)))
}

func TestPrefetchIsAllOrNothing(t *testing.T) {
	b := world(t, full(3, 4))
	b.visit(count(1, 8))
	b.visit(count(21, 12))
	b.tokens(count(31, 8)) // runs: one device page is left
	_, err := b.Prefetch(ctx, prefix(count(1, 8)))
	b.refused(err, 2, 1)
}

func TestSessions(t *testing.T) {
	b := world(t, full(16, 0))
	store := func(tokens []messages.Token, session string) {
		b.releaseAll(b.prefill(messages.AdmitRequest{Tokens: tokens, Session: session}).Sequence)
	}
	store(count(1, 8), "s")
	store(count(1, 4), "") // P−1: reuses the first block in part only
	store(count(21, 8), "s")
	store(count(21, 5), "x") // reuses its first block whole
	n, err := b.Invalidate(ctx, messages.Selector{Session: "s"})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 4, shareOf(b, count(1, 8)))
	require.Equal(t, 4, shareOf(b, count(21, 8)))
}

func TestWhatAnInvalidationNamesStoresNothingMore(t *testing.T) {
	b := world(t, full(16, 0))
	a := b.tokens(count(1, 9))
	other := b.tokens(append(count(1, 4), 50, 51, 52, 53))
	forks, err := forkOf(b, a.Sequence, 1)
	require.NoError(t, err)
	q := prefix(count(1, 6))
	n, err := b.Invalidate(ctx, messages.Selector{Prefix: &q})
	require.NoError(t, err)
	require.Equal(t, 1, n, "shorter ones stay")
	b.releaseAll(a.Sequence, forks[0], other.Sequence)
	require.Equal(t, 4, shareOf(b, count(1, 8)))
	require.Equal(t, 8, shareOf(b, append(count(1, 4), 50, 51, 52, 53)))
}

func TestResetForgetsByPoolWhatNoSequenceHolds(t *testing.T) {
	b := world(t, limited(8, 0), full(8, 0))
	a := b.tokens(count(1, 12)) // holds one block of the window
	b.visit(count(51, 4))
	b.pin(count(51, 4))
	b.typesOf()
	require.NoError(t, b.Reset(ctx))
	require.Equal(t, map[kvevents.EventType]int{kvevents.EventRemoved: 2 + 2}, b.typesOf())
	require.Equal(t, inspect.TierPages{Total: 8, Used: 1, Free: 7}, b.pool(0).Primary)
	require.Equal(t, inspect.TierPages{Total: 8, Used: 3, Free: 5}, b.pool(1).Primary)
	_, err := b.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
	require.NoError(t, err)
	require.NoError(t, b.Reset(ctx))
	require.Equal(t, map[kvevents.EventType]int{kvevents.EventRemoved: 1 + 3,
		kvevents.EventCleared: 1}, b.typesOf())
}

// typesOf takes the events and counts them by type.
func (b *play) typesOf() map[kvevents.EventType]int {
	batch, err := b.Events(ctx)
	require.NoError(b.t, err)
	n := map[kvevents.EventType]int{}
	for _, e := range batch.Events {
		n[e.Type]++
	}
	return n
}

func TestATakeoverAndAnOrphanAreTold(t *testing.T) {
	b := world(t, full(3, 0))
	b.visit(count(1, 6))
	b.typesOf()
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 7)})
	require.Equal(t, messages.PartialTakeover, a.Reuse[0].PartialReuse)
	require.Equal(t, map[kvevents.EventType]int{kvevents.EventRemoved: 1}, b.typesOf())
	b.releaseAll(a.Sequence) // nothing but what was reused was computed: stored again
	require.Equal(t, map[kvevents.EventType]int{kvevents.EventStored: 1}, b.typesOf())
	require.Equal(t, 6, b.found(count(1, 7)).MatchedTokens)
}

func TestOrphansAreFoundAgain(t *testing.T) {
	b := world(t, full(3, 0))
	b.lodge(count(1, 8), &messages.Retention{Ranges: []messages.RetentionRange{
		{Start: 0, End: 4, Priority: 0}, {Start: 4, End: messages.EndOfPrompt, Priority: 90},
	}})
	b.visit(count(51, 8)) // the free page, then the first block
	f := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 4)})
	require.Equal(t, messages.ReasonCold, f.MissReason, "nothing of these four is stored")
	b.computed(f.Sequence, 4)
	b.releaseAll(f.Sequence)
	require.Equal(t, 8, b.found(count(1, 9)).MatchedTokens)
}

func TestWhy(t *testing.T) {
	b := world(t, limited(3, 0), full(8, 0))
	b.visit(count(1, 8))
	require.Equal(t, messages.ReasonHit,
		b.admitOnly(messages.AdmitRequest{Tokens: count(1, 9)}).MissReason)
	require.Equal(t, messages.ReasonCold,
		b.admitOnly(messages.AdmitRequest{Tokens: count(90, 2)}).MissReason)
}

func TestValidate(t *testing.T) {
	o := world(t, full(4, 0)).Oracle
	ranges := func(
		all ...messages.RetentionRange) *messages.Retention {
		return &messages.Retention{Ranges: all}
	}
	items := func(all ...messages.MultimodalItem) messages.AdmitRequest {
		return messages.AdmitRequest{Tokens: count(1, 8), Multimodal: all}
	}
	kept := func(r *messages.Retention) messages.AdmitRequest {
		return messages.AdmitRequest{Tokens: count(1, 8), Retention: r}
	}
	tests := []struct {
		name string
		r    messages.AdmitRequest
		want messages.Code
	}{
		{"plain", messages.AdmitRequest{Tokens: count(1, 8)}, ""},
		{"no tokens", messages.AdmitRequest{}, messages.ErrBadRequest},
		{"negative token", messages.AdmitRequest{Tokens: []messages.Token{-1}}, messages.ErrBadRequest},
		{"items that touch", items(messages.MultimodalItem{Start: 4, Length: 4},
			messages.MultimodalItem{Length: 4}), ""},
		{"items that overlap", items(messages.MultimodalItem{Start: 3, Length: 4},
			messages.MultimodalItem{Length: 4}), messages.ErrBadRequest},
		{"empty item", items(messages.MultimodalItem{Start: 3}), messages.ErrBadRequest},
		{"item past the end", items(messages.MultimodalItem{Start: 7, Length: 2}),
			messages.ErrBadRequest},
		{"ranges in any order",
			kept(ranges(messages.RetentionRange{Start: 4, End: -1}, messages.RetentionRange{End: 4})), ""},
		{"range beyond the prompt", kept(ranges(messages.RetentionRange{Start: 20, End: 30})), ""},
		{"overlap",
			kept(ranges(messages.RetentionRange{End: 5}, messages.RetentionRange{Start: 4, End: 6})),
			messages.ErrBadRequest},
		{"open in the middle",
			kept(ranges(messages.RetentionRange{End: -1}, messages.RetentionRange{Start: 4, End: 6})),
			messages.ErrBadRequest},
		{"empty range", kept(ranges(messages.RetentionRange{Start: 4, End: 4})), messages.ErrBadRequest},
		{"negative start", kept(ranges(messages.RetentionRange{Start: -2, End: 4})),
			messages.ErrBadRequest},
		{"priority 101", kept(keep(101, 0)), messages.ErrBadRequest},
		{"duration below a millisecond", kept(keep(1, time.Microsecond)), messages.ErrBadRequest},
		{"decode duration", kept(&messages.Retention{Decode: &messages.DecodeRetention{Duration: 1}}),
			messages.ErrBadRequest},
		{"negative beams", messages.AdmitRequest{Tokens: count(1, 8), BeamWidth: -1},
			messages.ErrBadRequest},
		{"adapter that is not there", messages.AdmitRequest{Tokens: count(1, 8),
			Namespace: messages.Namespace{LoRA: "x"}}, messages.ErrBadRequest},
		{"adapter without a name", messages.AdmitRequest{Tokens: count(1, 8),
			Namespace: messages.Namespace{HasLoRA: true}}, ""},
		{"chunk off the blocks", messages.AdmitRequest{Tokens: count(1, 8), ChunkTokens: 6},
			messages.ErrBadRequest},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			err := o.Validate(x.r)
			if x.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, x.want)
		})
	}
}
