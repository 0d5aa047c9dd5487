package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// The target of a store: a fixed part for the requests, a part for each token.
const (
	storeFixed    = 3 * time.Microsecond
	storePerToken = 3 * time.Nanosecond
)

// storing stores the same prompt again and again under a first token that no
// one has used, so that all of it is new.
type storing struct {
	do     do
	calls  *calls
	tokens []messages.Token
	room   int // prompts until the engine is emptied; 0: it evicts
	stored int
}

func newStoring(do do, tokens []messages.Token, room int) *storing {
	return &storing{do: do, tokens: tokens, room: room, calls: newCalls(tokens)}
}

// next stores one prompt and counts its three requests alone.
func (s *storing) next() time.Duration {
	if s.room > 0 && s.stored%s.room == s.room-1 {
		s.do(&messages.Reset{})
	}
	s.stored++
	s.tokens[0] = messages.Token(vocabulary + s.stored)
	start := time.Now()
	s.calls.store(s.do)
	return time.Since(start)
}

// storeFloor is the floor of a store: memory to copy tokens to and an array of free
// pages for each pool.
type storeFloor struct {
	tokens []messages.Token
	memory [][]messages.Token // used in turn, as an engine does not write where it just wrote
	tables [][]messages.PageID
	free   []messages.PageID
	turn   int
}

func newStoreFloor(tokens []messages.Token, pools int) *storeFloor {
	s := &storeFloor{tokens: tokens, free: make([]messages.PageID, len(tokens)/tokensPerBlock)}
	for i := range s.free {
		s.free[i] = messages.PageID(len(s.free) - i)
	}
	for range 16 {
		s.memory = append(s.memory, make([]messages.Token, len(tokens)))
	}
	for range pools {
		s.tables = append(s.tables, make([]messages.PageID, len(s.free)))
	}
	return s
}

func (s *storeFloor) next() {
	copy(s.memory[s.turn%len(s.memory)], s.tokens)
	s.turn++
	for _, t := range s.tables {
		for i := range t {
			t[i] = s.free[len(s.free)-1-i]
		}
	}
}

// BenchmarkStore admits a new prompt, commits and releases it. The floor copies
// the tokens and takes the pages from an array. With room there are free pages;
// full, every page is taken from an older prompt.
func BenchmarkStore(b *testing.B) {
	for _, pools := range []int{1, 3} {
		for _, tokens := range []int{shortText, longText} {
			for _, state := range []string{"room", "full"} {
				b.Run(fmt.Sprintf("pools=%d/tokens=%dk/%s", pools, tokens/1000, state), func(b *testing.B) {
					benchStore(b, pools, tokens, state)
				})
			}
		}
	}
}

func benchStore(b *testing.B, pools, tokens int, state string) {
	const prompts = 32
	s := full(prompts * tokens / tokensPerBlock)
	if pools == 3 {
		s.windows = hybrid(0).windows
	}
	room := 0
	if state == "room" {
		room = prompts
	}
	text := random(dice(3), tokens)
	above := newStoring(s.actors(b), text, room)
	for range prompts + 1 {
		above.next()
	}
	floor := newStoreFloor(random(dice(4), tokens), pools)
	c := versus(b, above.next, timed(floor.next))
	require.Zero(b, above.calls.reused())
	median := c.engine.quantile(0.5)
	b.ReportMetric(median/float64(tokens), "ns/token")
	b.ReportMetric(median/float64(storeFixed+time.Duration(tokens)*storePerToken), "x/target")
}

// BenchmarkFurtherPool stores prompts in an engine with three pools of full attention; the floor is
// the same engine with one. Every page is taken from an older prompt.
func BenchmarkFurtherPool(b *testing.B) {
	const prompts = 32
	for _, tokens := range []int{shortText, longText} {
		b.Run(fmt.Sprintf("tokens=%dk", tokens/1000), func(b *testing.B) {
			one := full(prompts * tokens / tokensPerBlock)
			three := one
			three.heads = []int{1, 2, 3}
			text := random(dice(3), tokens)
			above, below := newStoring(three.actors(b), text, 0), newStoring(one.actors(b), text, 0)
			for range prompts + 1 {
				above.next()
				below.next()
			}
			c := versus(b, above.next, below.next)
			require.Zero(b, above.calls.reused()+below.calls.reused())
			further := (c.engine.quantile(0.5) - c.floor.quantile(0.5)) / 2
			b.ReportMetric(further/float64(tokens/tokensPerBlock), "ns/block-of-a-pool")
		})
	}
}

// readEvery is after how many prompts the reader of BenchmarkEvents asks.
const readEvery = 16

// BenchmarkEvents stores with events recorded and published; the floor is the
// same engine without. Read: a reader takes all events now and then, between the
// stores that count, which gives every block its name; read-ns/block is what it
// waits. Unread: no one asks, and the log is full most of the time. Decode: the
// steps of BenchmarkAppend, which store single blocks; unread, the pools and the log are
// full before.
func BenchmarkEvents(b *testing.B) {
	for _, tokens := range []int{shortText, longText} {
		for _, reader := range []string{"read", "unread"} {
			b.Run(fmt.Sprintf("tokens=%dk/%s", tokens/1000, reader), func(b *testing.B) {
				benchEvents(b, tokens, reader == "read")
			})
		}
	}
	b.Run("decode/read", benchDecodeEvents)
	b.Run("decode/unread", benchDecodeUnread)
}

func benchEvents(b *testing.B, tokens int, reads bool) {
	const prompts = 32
	off := full(prompts * tokens / tokensPerBlock)
	on := off
	on.events = 4 * readEvery
	text := random(dice(5), tokens)
	above, below := newStoring(on.actors(b), text, 0), newStoring(off.actors(b), text, 0)
	for range prompts + on.events/2 {
		above.next()
		below.next()
	}
	versusRead(b, above.do, func() bool { return reads && above.stored%readEvery == 0 }, above.next,
		below.next)
}

// versusRead is versus with a reader who takes the events when they are due, and
// at the end.
func versusRead(b *testing.B, do do, due func() bool, above, below side) {
	r := &eventReader{do: do}
	r.read(b)
	versus(b, func() time.Duration {
		if due() {
			r.read(b)
		}
		return above()
	}, below)
	r.read(b)
	require.NotZero(b, r.blocks)
	b.ReportMetric(float64(r.waited.Nanoseconds())/float64(r.blocks), "read-ns/block")
}

func benchDecodeEvents(b *testing.B) {
	off := hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock)
	on := off
	on.events = 1 << 16
	above, below := newBatch(on.actors(b), 7), newBatch(off.actors(b), 7)
	versusRead(b, above.do, func() bool { return above.step%(4*readEvery) == 0 }, above.next,
		below.next)
}

// benchDecodeUnread measures when the pools and the log are full: each step evicts as much
// as it stores, and each event drops another one.
func benchDecodeUnread(b *testing.B) {
	off := hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock)
	on := off
	on.events = 1 << 16
	above, below := newBatch(on.actors(b), 7), newBatch(off.actors(b), 7)
	for range scaled(settling) {
		above.next()
		below.next()
	}
	versus(b, above.next, below.next)
}

// eventReader takes events and counts what they tell.
type eventReader struct {
	do     do
	waited time.Duration
	blocks int // stored and removed
}

func (r *eventReader) read(b *testing.B) {
	m := &kvevents.ReadEvents{}
	start := time.Now()
	r.do(m)
	r.waited += time.Since(start)
	require.NoError(b, m.Err)
	for i := range m.Batch.Events {
		r.blocks += len(m.Batch.Events[i].Blocks) + len(m.Batch.Events[i].Hashes)
	}
}
