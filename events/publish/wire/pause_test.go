package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// counting counts what a publisher asks of an engine after its start.
type counting struct {
	Source
	reads, snapshots, lost atomic.Int64
}

func (c *counting) Events(ctx context.Context, r kvevents.ReaderID) (kvevents.EventBatch, error) {
	c.reads.Add(1)
	batch, err := c.Source.Events(ctx, r)
	c.lost.Add(int64(batch.Lost))
	return batch, err
}

func (c *counting) Snapshot(ctx context.Context, r kvevents.ReaderID) (kvevents.EventBatch, error) {
	c.snapshots.Add(1)
	return c.Source.Snapshot(ctx, r)
}

// newPausing makes a host whose publisher reads by itself, and pauses at once without readers.
func newPausing(t *testing.T, change func(*Options)) (*host, *counting) {
	source := &counting{}
	h := newHost(t, func(o *Options) {
		source.Source = o.Source
		o.Source, o.Interval, o.Linger = source, time.Millisecond, time.Nanosecond
		change(o)
	})
	return h, source
}

// waitPaused waits until the publisher reads no events.
func (h *host) waitPaused() {
	h.waitFor(func() bool { return h.p.paused })
}

// waitFor waits for a condition on what Publisher.mu protects.
func (h *host) waitFor(condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		h.p.mu.Lock()
		defer h.p.mu.Unlock()
		return condition()
	}, time.Minute, time.Millisecond)
}

// requireExact compares what is published of prompts with what the engine would reuse.
func (h *host) requireExact(prompts [][]messages.Token) {
	h.t.Helper()
	for _, p := range prompts {
		engine, published := h.matched(messages.Namespace{}, p)
		require.Equal(h.t, engine, published)
	}
}

// Without a reader the publisher asks the engine for nothing. Who asks then is told what the
// engine holds, also if it made more events than its buffer keeps.
func TestAPublisherWithoutReadersPauses(t *testing.T) {
	h, source := newPausing(t, func(*Options) {})
	require.EqualValues(t, 1, source.snapshots.Load(), "that of the start")
	for _, runs := range []int{3, 600} {
		h.waitPaused()
		reads, snapshots := source.reads.Load(), source.snapshots.Load()
		var prompts [][]messages.Token
		for range runs {
			prompts = append(prompts, h.run(messages.Namespace{}))
		}
		require.Equal(t, reads, source.reads.Load())
		h.requireExact(prompts[len(prompts)-3:])
		require.Greater(t, source.reads.Load(), reads)
		assert.Equal(t, runs > 3, source.snapshots.Load() > snapshots, "a snapshot for lost events alone")
		require.NoError(t, h.p.view.Check())
	}
}

// An engine whose events no reader has taken for long keeps none and counts them. The reader that
// comes then is told all the same what the engine holds, and each change from then on.
func TestAPauseOfManyEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 70,000 events")
	}
	h, source := newPausing(t, func(*Options) {})
	h.waitPaused()
	var prompts [][]messages.Token
	for range 9000 {
		prompts = append(prompts, h.run(messages.Namespace{}))
	}
	h.requireExact(prompts[len(prompts)-20:])
	require.Greater(t, source.lost.Load(), int64(70_000))
	require.NoError(t, h.p.view.Check())
	require.Positive(t, h.p.Blocks())
	for range 20 {
		prompt := h.run(messages.Namespace{})
		h.waitPaused() // while it reads, the publisher is behind by up to an interval
		h.requireExact([][]messages.Token{prompt})
	}
}

// A subscriber ends a pause, gets every batch from then on, and finds in a replay what came
// before, without a gap. When it has gone the publisher pauses again.
func TestASubscriberEndsAPause(t *testing.T) {
	h, source := newPausing(t, enabled)
	h.waitPaused()
	for range 20 {
		h.run(messages.Namespace{})
	}
	t.Run("subscribed", func(t *testing.T) {
		got := subscribeTo(t, h, "")
		next := h.p.Next()
		require.EqualValues(t, 2, next, "what happened before the subscription")
		h.run(messages.Namespace{Salt: "of no other prompt"})
		m := <-got
		assert.Equal(t, next, binary.BigEndian.Uint64(m.Frames[1]))
		for i, m := range replay(t, h, 0)[:3] {
			assert.EqualValues(t, i, binary.BigEndian.Uint64(m.Frames[2]))
		}
	})
	h.waitPaused()
	reads := source.reads.Load()
	h.run(messages.Namespace{Salt: "of no other prompt either"})
	require.Equal(t, reads, source.reads.Load())
	next := h.p.Next()
	assert.Len(t, replay(t, h, 0), int(next)+1, "a replay has what happened up to now")
}

// A reader of HTTP ends a pause as well, and its mirror is exact.
func TestAFollowerEndsAPause(t *testing.T) {
	h, source := newPausing(t, func(*Options) {})
	h.waitPaused()
	for range 30 {
		h.run(messages.Namespace{})
	}
	server := httptest.NewServer(h.p)
	defer server.Close()
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	s, m := &stream{t: t, body: bufio.NewReader(response.Body)}, mirror{}
	m.follow(t, s.next())
	assert.NotEmpty(t, m)
	assert.Len(t, m, h.p.Blocks())
	h.run(messages.Namespace{Salt: "of no other prompt"})
	m.follow(t, s.next())
	reads := source.reads.Load()
	h.waitFor(func() bool { return source.reads.Load() > reads+10 }) // also without news
	require.NoError(t, response.Body.Close())
	h.waitPaused()
}

// Polled events are told one by one, and readers that come and go need not cost snapshots:
// both keep the publisher from pausing.
func TestAPublisherThatDoesNotPause(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"polled": func(o *Options) { o.Polled = 100 },
		"linger": func(o *Options) { o.Linger = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			h, source := newPausing(t, change)
			h.waitFor(func() bool { return source.reads.Load() > 10 })
			assert.False(t, h.p.pause())
		})
	}
}

// An engine that has ended during a pause costs a reader nothing: it gets what was published.
func TestAReaderOfAnEngineThatHasEnded(t *testing.T) {
	h, source := newPausing(t, enabled)
	h.waitPaused()
	_, err := h.engine.Close(t.Context())
	require.NoError(t, err)
	assert.Zero(t, h.p.Blocks())
	assert.Len(t, replay(t, h, 0), 1)
	assert.Positive(t, source.reads.Load())
}
