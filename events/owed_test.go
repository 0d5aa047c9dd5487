package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// born makes a naming of one block of its own.
func born(i int) *protocol.Naming {
	return &protocol.Naming{Blocks: 1, Tokens: []messages.Token{messages.Token(i), 0}, Namespace: &messages.Namespace{}}
}

func tell(kind messages.EventType, k *protocol.Naming) []protocol.Event {
	return []protocol.Event{{Event: messages.Event{Type: kind}, Spans: []protocol.Span{{Naming: k, Count: k.Blocks}}}}
}

// Nobody reads: a block that has gone is never hashed, and of those that are
// stored the tokens of a bounded number are kept.
func TestWhatNobodyReadsIsNotHashed(t *testing.T) {
	l := New(2)
	l.owed.limit = 4
	gone := born(0)
	l.Append(tell(messages.EventStored, gone))
	l.Append(tell(messages.EventRemoved, gone))
	l.Settle()
	var stored []*protocol.Naming
	for i := range 20 {
		k := born(i)
		stored = append(stored, k)
		l.Append(tell(messages.EventStored, k))
		l.Settle()
	}
	require.NoError(t, l.Check())
	assert.Nil(t, gone.Hashes)
	unnamed := 0
	for _, k := range stored {
		require.Equal(t, k.Hashes == nil, k.Tokens != nil)
		if k.Hashes == nil {
			unnamed++
		}
	}
	assert.Equal(t, 2+4, unnamed, "kept events and what is owed")
}

// Tokens come back from what nobody reads when the tree, the kept events and what
// comes behind need them no more; they are not hashed for it.
func TestWhatNobodyNeedsComesBack(t *testing.T) {
	l := New(2)
	first, second := born(0), born(1)
	second.After, second.Namespace = first, nil
	for _, k := range []*protocol.Naming{first, second} {
		l.Append(tell(messages.EventStored, k))
	}
	l.Append(tell(messages.EventRemoved, first))
	l.Append(tell(messages.EventRemoved, second))
	for range 2 {
		l.Append(tell(messages.EventCreated, born(2)))
	}
	require.Empty(t, l.Settle(), "the tree has both as ghosts")

	l.Gone([]*protocol.Naming{first})
	require.Empty(t, l.Settle(), "the second would be named by the first")
	l.Gone([]*protocol.Naming{second})
	require.Equal(t, [][]messages.Token{{1, 0}, {0, 0}}, l.Settle())
	assert.Nil(t, first.Hashes)
	assert.Nil(t, second.Hashes)
	require.NoError(t, l.Check())

	part := born(4)
	l.Append(tell(messages.EventStored, part))
	l.Append(tell(messages.EventRemoved, part))
	l.Gone([]*protocol.Naming{part})
	require.Empty(t, l.Settle(), "events are kept that speak of it")
	l.Snapshot(nil)
	require.Equal(t, [][]messages.Token{{4, 0}}, l.Settle(), "they are part of what a snapshot replaces")

	never := born(3)
	l.Gone([]*protocol.Naming{never})
	require.Len(t, l.Settle(), 1, "nothing was ever told of it")
}

// Nobody reads for long: of blocks that have gone the log keeps nothing, however
// many may be owed names.
func TestWhatIsGoneIsNotOwed(t *testing.T) {
	const alive = 100
	l := New(10)
	var stored []*protocol.Naming
	for i := range 4 * sweepAfter {
		stored = append(stored, born(i))
		l.Append(tell(messages.EventStored, stored[i]))
		if i >= alive {
			l.Append(tell(messages.EventRemoved, stored[i-alive]))
			l.Gone(stored[i-alive : i-alive+1])
		}
		l.Settle()
		require.LessOrEqual(t, len(l.owed.namings), 2*sweepAfter)
	}
	require.NoError(t, l.Check())
	unnamed := 0
	for _, k := range l.owed.namings[l.owed.head:] {
		if k.Era != freed {
			unnamed++
		}
	}
	assert.LessOrEqual(t, unnamed, alive)
}

// A log that follows on a broken one does not trust its counts: what was counted
// stays for the garbage collector, what comes is counted.
func TestNeedsAfterAFailure(t *testing.T) {
	broken := New(1)
	old, young := born(0), born(1)
	broken.Append(tell(messages.EventStored, old))
	l := Resume(broken, nil)
	young.After, young.Namespace = old, nil
	l.Append(tell(messages.EventStored, young))
	l.Append(tell(messages.EventRemoved, young))
	l.Gone([]*protocol.Naming{young, old})
	l.Append(wrap([]messages.Event{{Type: messages.EventCreated}}))
	require.Equal(t, [][]messages.Token{{1, 0}}, l.Settle())
	assert.NotNil(t, old.Tokens)
	require.NoError(t, l.Check())
}

// A chain as long as a prompt that was generated block by block.
func TestNamesOfALongChain(t *testing.T) {
	last := born(0)
	texts := [][]byte{make([]byte, 8)}
	for range 100_000 {
		last = &protocol.Naming{Blocks: 1, Tokens: make([]messages.Token, 2), After: last}
		texts = append(texts, texts[0])
	}
	events := tell(messages.EventRemoved, last)
	batch, _ := Name(protocol.EventBatch{Events: events})
	assert.Equal(t, []messages.Hash{spell(messages.Namespace{}, texts...)}, batch.Events[0].Hashes)
}

// No two namespaces have a block of one name.
func TestNamesOfNamespaces(t *testing.T) {
	seen := map[messages.Hash]messages.Namespace{}
	for _, ns := range []messages.Namespace{
		{}, {HasLoRA: true}, {Salt: "a"}, {LoRA: "a", HasLoRA: true}, {Encoder: "a"}, {Salt: "a", LoRA: "a", HasLoRA: true},
		{Salt: "aa"}, {Salt: "a", Encoder: "a"}, {Salt: "\x01a"}, {Encoder: "\x01a"}, {Encoder: "a", LoRA: "a", HasLoRA: true},
	} {
		k := &protocol.Naming{Blocks: 1, Tokens: make([]messages.Token, 2), Namespace: &ns}
		events := tell(messages.EventStored, k)
		batch, _ := Name(protocol.EventBatch{Events: events})
		name := batch.Events[0].Blocks[0].Hash
		other, twice := seen[name]
		assert.False(t, twice, "%+v and %+v", ns, other)
		seen[name] = ns
	}
}

func BenchmarkName(b *testing.B) {
	const blocks, tokens = 6400, 16
	events := tell(messages.EventStored, &protocol.Naming{Blocks: blocks, Namespace: &messages.Namespace{}})
	spans := events[0].Spans
	text := make([]messages.Token, blocks*tokens)
	for b.Loop() {
		spans[0].Naming.Hashes, spans[0].Naming.Tokens = nil, text
		events[0].Spans, events[0].Blocks = spans, nil
		Name(protocol.EventBatch{Events: events})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}
