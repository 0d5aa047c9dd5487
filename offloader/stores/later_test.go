package stores_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
)

func TestLaterIsAStore(t *testing.T) {
	var m stores.Memory
	open := func(context.Context) (stores.Store, error) { return &m, nil }
	storetest.Run(t, func(*testing.T) stores.Store { return stores.OpenLater(open) })
}

// A store that is down at the start is found by a call after it has come.
func TestAStoreThatComesLater(t *testing.T) {
	var m stores.Memory
	down := errors.New("down")
	err := down
	l := stores.OpenLater(func(context.Context) (stores.Store, error) { return &m, err })
	objects := storetest.Objects(t.Name(), 1, 10)
	assert.ErrorIs(t, l.Open(t.Context()), down)
	assert.ErrorIs(t, l.Put(t.Context(), objects), down)
	found := []bool{true}
	assert.ErrorIs(t, l.Has(t.Context(), storetest.Keys(objects), found), down)
	assert.Equal(t, []bool{false}, found)
	err = nil
	assert.NoError(t, l.Put(t.Context(), objects))
	assert.NoError(t, l.Has(t.Context(), storetest.Keys(objects), found))
	assert.Equal(t, []bool{true}, found)
	assert.NoError(t, l.Close())
	assert.Error(t, l.Put(t.Context(), objects))
}

// closable notes that it was closed.
type closable struct {
	stores.Memory
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

// Calls wait for one attempt, each no longer than its own time, and a store that opens behind
// the end is closed.
func TestAnAttemptThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, s := 0, &closable{}
		l := stores.OpenLater(func(context.Context) (stores.Store, error) {
			attempts++
			time.Sleep(10 * time.Second)
			return s, nil
		})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			assert.ErrorIs(t, l.Put(ctx, nil), context.DeadlineExceeded)
			cancel()
		}
		synctest.Wait()
		assert.Equal(t, 1, attempts)
		require.NoError(t, l.Close())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.True(t, s.closed)
	})
}
