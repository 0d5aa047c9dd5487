package mailbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/mailbox"
)

func TestSlotFinishedBeforeTheWait(t *testing.T) {
	var s mailbox.Slot
	assert.False(t, s.Done())
	assert.True(t, s.Finish())
	assert.True(t, s.Done())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Wait(ended), "an answer that is there counts")
	require.NoError(t, s.Wait(context.Background()), "and stays there")
	s.Reset()
	assert.False(t, s.Done())
}

func TestSlotFinishedDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s mailbox.Slot
		for range 3 {
			s.Reset()
			delivered := make(chan bool, 1)
			go func() {
				time.Sleep(time.Second)
				delivered <- s.Finish()
			}()
			require.NoError(t, s.Wait(t.Context()))
			assert.True(t, <-delivered)
		}
	})
}

func TestSlotAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s mailbox.Slot
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, s.Abandoned())
		require.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
		assert.True(t, s.Abandoned())
		assert.False(t, s.Done())
		assert.PanicsWithValue(t, "mailbox: reset of a slot that is abandoned and not finished", s.Reset)
		assert.PanicsWithValue(t, "mailbox: wait for a slot that is abandoned", func() { _ = s.Wait(t.Context()) })

		assert.False(t, s.Finish(), "the record is the finisher's")
		assert.False(t, s.Abandoned())
		assert.True(t, s.Done())
		s.Reset()
		assert.True(t, s.Finish())
		require.NoError(t, s.Wait(t.Context()))
	})
}

func TestSlotResetWhileWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s mailbox.Slot
		go func() { assert.NoError(t, s.Wait(t.Context())) }()
		synctest.Wait()
		assert.PanicsWithValue(t, "mailbox: reset of a slot that is parked and not finished", s.Reset)
		assert.True(t, s.Finish())
		synctest.Wait()
	})
}

func TestSlotFinishedTwice(t *testing.T) {
	var s mailbox.Slot
	s.Finish()
	assert.PanicsWithValue(t, "mailbox: a slot was finished twice", func() { s.Finish() })
}

// The answer and the end of the context race: exactly one of them wins, both
// sides agree which, and the slot is as good as new afterwards.
func TestSlotRaceOfAnswerAndContext(t *testing.T) {
	s := &mailbox.Slot{}
	for i := range 2000 {
		ctx, cancel := context.WithCancel(context.Background())
		var both sync.WaitGroup
		var delivered bool
		both.Go(func() { delivered = s.Finish() })
		both.Go(func() {
			for range i % 7 {
				time.Sleep(0)
			}
			cancel()
		})
		err := s.Wait(ctx)
		both.Wait()
		cancel()
		require.Equal(t, delivered, err == nil, "turn %d: %v", i, err)
		require.True(t, s.Done())
		s.Reset()
	}
}

func TestSlotAllocatesNothingOnceItHasBlocked(t *testing.T) {
	var s mailbox.Slot
	ask, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stop)
		for range ask {
			s.Finish()
		}
	}()
	turn := func() {
		s.Reset()
		ask <- struct{}{}
		if err := s.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		turn()
	}
	assert.Zero(t, testing.AllocsPerRun(200, turn))
	close(ask)
	<-stop
}
