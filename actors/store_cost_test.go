package actors_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// countingCompressor counts the pages that are encoded, and makes none of them shorter.
type countingCompressor struct{ pages *atomic.Int64 }

func (c countingCompressor) Compress(dst, src []byte) []byte {
	c.pages.Add(1)
	return append(dst, src...)
}

func (countingCompressor) Decompress(dst, src []byte) error {
	copy(dst, src)
	return nil
}

// withCounted is withStore that counts the pages that are encoded.
func withCounted(
	s stores.Store, save actors.SavePolicy, pages *atomic.Int64, breaker int,
) actors.Option {
	return actors.WithStore(actors.StoreConfig{
		Store: s, Model: "m", Save: save, WaitForCopies: true, BreakerFailures: breaker,
		BreakerPause: time.Hour,
		Compressor:   func() stores.Compressor { return countingCompressor{pages} },
	})
}

// What will not be written is not encoded: objects that the store has, and all while the
// store does not answer.
func TestPagesAreEncodedOnlyToBeWritten(t *testing.T) {
	for _, save := range []actors.SavePolicy{actors.SaveOnReuse, actors.SaveOnCommit} {
		var memory stores.Memory
		var encoded atomic.Int64
		first := newRig(t, onePool, withCounted(&memory, save, &encoded, -1))
		first.store(run(0, 21))
		first.store(run(0, 21))
		assert.Equal(t, 5, flushed(t, first))
		assert.EqualValues(t, 5, encoded.Swap(0))
		first.close()

		second := newRig(t, onePool, withCounted(&memory, save, &encoded, -1))
		second.store(run(0, 21))
		second.store(run(0, 21))
		assert.Zero(t, flushed(t, second))
		assert.Zero(t, encoded.Load(), "the store has all")
		second.close()

		third := newRig(t, onePool, withCounted(&memory, save, &encoded, 1))
		memory.Fail(1)
		for i := range 2 {
			third.store(run(100*i, 21)) // the block that is stored in part is none to be saved
			third.store(run(100*i, 21))
			assert.Zero(t, flushed(t, third))
		}
		assert.Zero(t, encoded.Load(), "the breaker is open")
		stats := actors.StoreOf(third.Engine).Stats()
		assert.EqualValues(t, 1, stats.Calls)
		assert.EqualValues(t, 2*5, stats.Dropped)
		third.close()
	}
}

// While a store hangs, its jobs keep their save pages, and what finds none is dropped and
// counted. When the store answers, all pages come back.
func TestSavePagesComeBackFromAStoreThatHangs(t *testing.T) {
	for _, save := range []actors.SavePolicy{actors.SaveOnReuse, actors.SaveOnCommit,
		actors.SaveHostEvict} {
		released := make(chan struct{})
		s := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(context.Context) error {
			<-released
			return nil
		}}
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 4}}},
			actors.WithStore(actors.StoreConfig{
				Store: s, Model: "m", Save: save, WaitForCopies: true, BreakerFailures: -1, Timeout: time.Hour,
			}))
		stats := actors.StoreOf(r.Engine).Stats
		prompt := 0
		for ; stats().Dropped == 0; prompt++ {
			r.store(run(100*prompt, 21))
			r.store(run(100*prompt, 21))
		}
		close(released)
		was := flushed(t, r)
		assert.Positive(t, was, "what had found a save page")
		dropped := stats().Dropped
		for i := range 4 {
			r.store(run(100*(prompt+i), 21))
			r.store(run(100*(prompt+i), 21))
			was = flushed(t, r)
		}
		if save != actors.SaveHostEvict {
			assert.Equal(t, 5, was, "a page for each block again")
		}
		assert.Positive(t, was)
		assert.Equal(t, dropped, stats().Dropped)
		r.close()
	}
}

// The log has one line when the breaker opens and one when it closes, whatever the calls and
// probes in between.
func TestTheBreakerIsLogged(t *testing.T) {
	var memory stores.Memory
	var lines lockedBuffer
	r := newRig(t, onePool, actors.WithName("logged"),
		actors.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))),
		actors.WithStore(actors.StoreConfig{
			Store: &memory, Model: "m", BreakerFailures: 2, BreakerPause: time.Millisecond,
		}))
	const opens, closes = "the store is not asked for a while", "the store answers again"
	fetch := func() {
		_, err := actors.StoreOf(r.Engine).Fetch(context.Background(), messages.Prefix{Tokens: run(0, 9)})
		require.NoError(t, err)
	}
	for round := 1; round <= 2; round++ {
		memory.Fail(3) // one more than opens it, so that the first probe fails
		fetch()
		assert.Equal(t, round-1, strings.Count(lines.String(), opens))
		fetch()
		for actors.StoreOf(r.Engine).Stats().BreakerOpen {
			fetch()
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, round, strings.Count(lines.String(), opens))
		assert.Equal(t, round, strings.Count(lines.String(), closes))
	}
	var opened string
	for line := range strings.Lines(lines.String()) {
		if strings.Contains(line, opens) {
			opened = line
		}
	}
	for _, part := range []string{"level=WARN", "engine=logged", "failures=2", "pause=1ms", "err="} {
		assert.Contains(t, opened, part)
	}
	r.close()
}

// Losses are logged with their number: pages that the store did not take, and objects of it
// that are wrong.
func TestLossesOfAStoreAreLogged(t *testing.T) {
	var memory stores.Memory
	var lines lockedBuffer
	s := &hookedStore{Memory: &memory, read: func(bodies [][]byte) {
		for i := range bodies {
			clear(bodies[i])
		}
	}}
	logged := actors.WithLogger(slog.New(slog.NewTextHandler(&lines, nil)))
	r := newRig(t, onePool, logged, withStore(s, actors.SaveOnCommit))
	r.store(run(0, 9))
	flushed(t, r)
	assert.NotContains(t, lines.String(), "store")
	memory.Fail(4)
	r.store(run(100, 9))
	flushed(t, r)
	memory.Fail(0)
	assert.Contains(t, lines.String(), `level=WARN msg="kvactor: pages were not saved to the store`)
	assert.Contains(t, lines.String(), "dropped_pages=2")
	r.close()

	second := newRig(t, onePool, logged, withStore(s, actors.SaveOnReuse))
	fetched(t, second, run(0, 9))
	assert.Contains(t, lines.String(),
		`level=WARN msg="kvactor: the store has an object that is not what was asked for`)
	assert.Contains(t, lines.String(), "rejected_objects=1")
	assert.NotContains(t, lines.String(), "rejected_objects=3", "only powers of two")
	second.close()
}

// lockedBuffer is a buffer for a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
