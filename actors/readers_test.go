package actors_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// Readers that read at once, while hosts store, get every event once between
// them; in the order of their ids a mirror can follow them exactly.
func TestReadersAndHostsAtOnce(t *testing.T) {
	const hosts, rounds = 4, 60
	r := newRig(t, setup{
		windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 24, Secondary: 8},
			{Primary: 24, Secondary: 8}},
		change: func(c *windows.Config) { c.EventBufferMaxSize = 1 << 20 },
	})
	ctx := context.Background()
	var all []kvevents.Event
	var mu sync.Mutex
	read := func() {
		batch, err := r.Events(ctx)
		assert.NoError(t, err)
		assert.Zero(t, batch.Lost)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, batch.Events...)
	}
	var running sync.WaitGroup
	for h := range hosts {
		w := r.newWriter(fmt.Sprintf("host %d", h))
		running.Go(func() {
			for i := range rounds {
				assert.NoError(t, runSequence(r, w, run(1000*h+7*(i%9), 4+i%17)))
			}
		})
		running.Go(func() {
			for range rounds {
				read()
			}
		})
	}
	running.Wait()
	read()
	slices.SortFunc(all, func(a, b kvevents.Event) int { return cmp.Compare(a.ID, b.ID) })
	mirror := events.NewMirror()
	require.NoError(t, mirror.Follow(kvevents.EventBatch{Events: all}))
	snapshot, err := r.Snapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, mirror.Compare(snapshot))
	assert.NotZero(t, mirror.Len())
	r.close()
}

// runSequence admits a prompt, computes it and releases it.
func runSequence(r *rig, w *host.Writer, tokens []messages.Token) error {
	request := messages.AdmitRequest{Tokens: tokens}
	a, err := r.Admit(context.Background(), request)
	if err != nil {
		return err
	}
	s := admitted(request, &a)
	return errors.Join(r.compute(w, s, len(tokens)), r.release(s))
}
