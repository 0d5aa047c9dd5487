package oracle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// keep is a retention of one range over the whole prompt.
func keep(p messages.Priority, d time.Duration) *messages.Retention {
	return &messages.Retention{Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt,
		Priority: p, Duration: d}}}
}

// lodge visits with a retention.
func (b *play) lodge(tokens []messages.Token, r *messages.Retention) {
	b.t.Helper()
	b.releaseAll(b.prefill(messages.AdmitRequest{Tokens: tokens, Retention: r}).Sequence)
}

func TestEvictionOrder(t *testing.T) {
	b := world(t, full(4, 0))
	b.lodge(count(10, 4), keep(50, 0))
	b.lodge(count(20, 4), keep(20, 0))
	b.visit(count(30, 8)) // 35
	var left []int
	for i := range 4 {
		b.lodge(count(100+10*i, 4), keep(100, 0))
		left = append(left, shareOf(b, count(10, 4))+shareOf(b, count(20, 4))+shareOf(b, count(30, 8)))
	}
	require.Equal(t, []int{4 + 8, 4 + 4, 4, 0}, left, "20 first, then 35 from the tail, then 50")
}

func TestTimers(t *testing.T) {
	ms := time.Millisecond
	b := world(t, full(2, 0))
	b.lodge(count(1, 4), keep(90, 10*ms))
	b.now = 6 * ms
	b.visit(count(1, 5)) // a hit and a release do not restart it
	b.now = 10*ms - 1
	require.Empty(t, b.priorities())
	b.now = 10 * ms
	require.Equal(t, [][2]int{{90, 35}}, b.priorities())
}

func TestALaterRequestSetsRetentionOnce(t *testing.T) {
	ms := time.Millisecond
	b := world(t, full(8, 0))
	b.lodge(count(1, 4), keep(90, 10*ms))
	b.now = 5 * ms
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 5), Retention: keep(20, 10*ms)})
	require.Equal(t, [][2]int{{90, 20}}, b.priorities(), "at the admission")
	b.now = 8 * ms
	b.releaseAll(a.Sequence)
	b.now = 15 * ms
	require.Equal(t, [][2]int{{20, 35}}, b.priorities(), "not at the release again")
}

// priorities takes the events and keeps the changes of priorities.
func (b *play) priorities() (changes [][2]int) {
	batch, err := b.Events(ctx)
	require.NoError(b.t, err)
	for _, e := range batch.Events {
		if e.Type == kvevents.EventUpdated && !e.TierChanged {
			changes = append(changes, [2]int{int(e.OldPriority), int(e.NewPriority)})
		}
	}
	return changes
}

func TestGeneratedBlocksHaveTheDecodePriority(t *testing.T) {
	b := world(t, full(8, 0))
	r := keep(80, 0)
	r.Decode = &messages.DecodeRetention{Priority: 10}
	a := b.prefill(messages.AdmitRequest{Tokens: count(1, 6), Retention: r})
	b.add(a.Sequence, count(7, 7)...)
	b.computed(a.Sequence, 12)
	snap, err := b.Snapshot(ctx)
	require.NoError(t, err)
	var got []messages.Priority
	for _, e := range snap.Events {
		got = append(got, e.Blocks[0].Priority)
	}
	require.Equal(t, []messages.Priority{80, 80, 10}, got, "the second block begins in the prompt")
}

func TestHostMemoryKeepsWhatIsDearer(t *testing.T) {
	b := world(t, full(2, 1))
	b.lodge(count(1, 4), keep(90, 0))
	b.lodge(count(11, 4), keep(90, 0))
	b.visit(count(21, 8)) // both go: the second displaces the first
	b.visit(count(31, 8)) // 35 does not displace 90
	require.EqualValues(t, 2, b.pool(0).Offloaded)
	require.EqualValues(t, 1+2, b.pool(0).Dropped)
	require.Equal(t, messages.Found{MatchedTokens: 4, SecondaryTokens: 4}, b.found(count(11, 5)))
}

func TestACleanCopySparesTheSecondCopy(t *testing.T) {
	b := world(t, full(2, 2))
	b.visit(count(1, 4))
	b.visit(count(21, 8)) // offloads it
	require.EqualValues(t, 128, b.pool(0).BytesOffloaded)
	n, err := b.Prefetch(ctx, prefix(count(1, 4)))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.EqualValues(t, 256, b.pool(0).BytesOffloaded, "for the page that it took")
	require.Equal(t, inspect.TierPages{Total: 2, Cached: 2}, b.pool(0).Secondary)
	b.visit(count(41, 8)) // both device pages go: 22.. reclaims the clean copy
	require.EqualValues(t, 1+1+2, b.pool(0).Offloaded)
	require.EqualValues(t, 128*4, b.pool(0).BytesOffloaded)
}

func TestAnEvictedBlockWithItsOwnCopyIsNotCopied(t *testing.T) {
	b := world(t, full(2, 3))
	b.visit(count(1, 4))
	b.visit(count(21, 8))
	_, err := b.Prefetch(ctx, prefix(count(1, 4)))
	require.NoError(t, err)
	b.visit(count(41, 8))
	s := b.pool(0)
	require.EqualValues(t, 4, s.Offloaded)
	require.EqualValues(t, 3*128, s.BytesOffloaded, "three blocks were copied, one had its copy")
	require.EqualValues(t, 0, s.Dropped)
}

func TestBelowTheMinimumNothingIsOffloaded(t *testing.T) {
	b := worldWith(t, func(c *oracle.Config) { c.SecondaryOffloadMinPriority = 36 }, full(1, 1))
	b.visit(count(1, 4))
	b.lodge(count(11, 4), keep(36, 0))
	b.visit(count(21, 4))
	require.EqualValues(t, 1, b.pool(0).Dropped)
	require.EqualValues(t, 1, b.pool(0).Offloaded)
}

func TestATakeoverFromHostMemoryFreesTheHostPage(t *testing.T) {
	b := world(t, full(3, 2))
	b.visit(count(1, 2))
	b.visit(count(21, 12)) // offloads the partial block
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 4)})
	require.Equal(t,
		[]messages.PoolReuse{{Partial: 1, PartialReuse: messages.PartialTakeover, Onboarded: 1}}, a.Reuse)
	require.Equal(t, inspect.TierPages{Total: 2, Cached: 1, Free: 1}, b.pool(0).Secondary)
	require.EqualValues(t, 128, b.pool(0).BytesOnboarded)
}

func TestAPartialCopyFromHostMemoryStaysThere(t *testing.T) {
	b := world(t, full(3, 2))
	b.visit(count(1, 4))
	b.visit(count(21, 12))
	a := b.admitOnly(messages.AdmitRequest{Tokens: append(count(1, 2), 99)})
	require.Equal(t, []messages.PoolReuse{{Partial: 1, PartialReuse: messages.PartialCopy}}, a.Reuse)
	require.EqualValues(t, 0, b.pool(0).Onboarded)
	require.Equal(t, messages.Found{MatchedTokens: 4, SecondaryTokens: 4}, b.found(count(1, 5)))
}

func TestAStoredDuplicateOfAHostBlockTakesItsPlace(t *testing.T) {
	// The window pool lacks the block, so it is computed again; in the other
	// pool it is in host memory only.
	b := world(t, limited(2, 0), full(2, 2))
	b.visit(count(1, 8))
	b.visit(count(21, 8))
	require.Equal(t, 0, b.found(count(1, 9)).MatchedTokens)
	a := b.tokens(count(1, 8))
	require.Equal(t, messages.ReasonWindowHole, a.MissReason)
	require.Equal(t, 0, a.ReusedTokens)
	s := b.pool(1)
	require.EqualValues(t, 0, s.Onboarded)
	require.Equal(t, inspect.TierPages{Total: 2, Cached: 2}, s.Secondary, "one copy was reclaimed")
	require.Equal(t, 7, b.found(count(1, 8)).PrimaryTokens)
}

func TestSequencesOfOneRequestLeaveLaterUses(t *testing.T) {
	b := world(t, full(4, 0))
	x, y := b.tokens(count(1, 4)), b.tokens(count(11, 4))
	_, err := b.Release(ctx, []messages.ReleaseStep{{Sequence: y.Sequence}, {Sequence: x.Sequence}})
	require.NoError(t, err)
	b.visit(count(21, 12))
	require.Equal(t, 4, shareOf(b, count(1, 4)))
	require.Equal(t, 0, shareOf(b, count(11, 4)))
}

func TestTheDeepestCleanCopyOfARequestGoesFirst(t *testing.T) {
	b := world(t, full(3, 3))
	b.visit(count(1, 8))
	b.visit(count(21, 12)) // both blocks of the first go to host memory
	n, err := b.Prefetch(ctx, prefix(count(1, 8)))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 4*128, b.pool(0).BytesOffloaded)
	b.visit(count(41, 4)) // what is left of the second reclaims the deeper copy
	b.visit(count(51, 8)) // the deeper block reclaims the other, which must be copied too
	require.EqualValues(t, 7*128, b.pool(0).BytesOffloaded)
	require.EqualValues(t, 2, b.pool(0).Dropped)
}
