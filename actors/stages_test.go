package actors_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// staged notes the stages of the admissions that an engine tells of.
type staged struct {
	mu   sync.Mutex
	list [][]inspect.Stage
	errs []error
}

func (s *staged) observe(
	_ context.Context, request messages.Request, stages []inspect.StageMark, err error,
) {
	if _, is := request.(*messages.Admit); !is {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []inspect.Stage
	for i, m := range stages {
		names = append(names, m.Stage)
		if i > 0 && m.Began.Before(stages[i-1].Began) {
			names = append(names, "backwards")
		}
	}
	s.list, s.errs = append(s.list, names), append(s.errs, err)
}

func (s *staged) taken() (list [][]inspect.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.list = s.list, nil
	return list
}

// An admission is matched, takes pages, moves what it evicts and tells the tree.
func TestStagesOfAnAdmission(t *testing.T) {
	var s staged
	r := newRig(t, twoPools(), actors.WithStageObserver(s.observe))
	defer r.close()
	r.store(run(0, 17))
	r.store(run(100, 17))
	q, err := r.start(run(0, 17)) // from host memory
	require.NoError(t, err)
	require.NoError(t, r.release(q))
	list := s.taken()
	require.Len(t, list, 3)
	for _, stages := range list {
		assert.Equal(t, []inspect.Stage{inspect.StageQueue, inspect.StageMatch}, stages[:2])
		assert.Contains(t, stages, inspect.StageTake)
		assert.NotContains(t, stages, inspect.Stage("backwards"))
	}
	assert.Contains(t, list[2], inspect.StageMove)

	// Refused before it was served: it was never more than queued.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = r.Admit(ctx, messages.AdmitRequest{Tokens: run(0, 4)})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, [][]inspect.Stage{{inspect.StageQueue}}, s.taken())

	// Submit tells, too, before its own answer.
	done := make(chan int, 1)
	m := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(500, 4)}}}
	require.NoError(t, r.Submit(m, func(error) { done <- len(s.taken()) }))
	assert.Equal(t, 1, <-done)
	require.NoError(t, r.release(admitted(m.Requests[0], &m.Results[0])))
}

// An admission that finds no pages waits, and goes on when there are some; one whose caller
// goes while it waits is told, too.
func TestStagesOfAnAdmissionThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a time that ends when all else waits
		var s staged
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}}, actors.WithWaitingRoom(2),
			actors.WithStageObserver(s.observe))
		defer r.close()
		first, err := r.start(run(0, 15))
		require.NoError(t, err)
		s.taken()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err = r.Admit(ctx, messages.AdmitRequest{Tokens: run(200, 15)})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		list := s.taken()
		require.Len(t, list, 1)
		assert.Equal(t, inspect.StageWait, list[0][len(list[0])-1])

		m := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(100, 15)}}}
		done := make(chan error, 1)
		require.NoError(t, r.Submit(m, func(err error) { done <- err }))
		require.NoError(t, r.release(first))
		require.NoError(t, <-done)
		list = s.taken()
		require.Len(t, list, 1)
		assert.Contains(t, list[0], inspect.StageWait)
		assert.Contains(t, list[0], inspect.StageTake)
		require.NoError(t, r.release(admitted(m.Requests[0], &m.Results[0])))
	})
}

// What observers cost an admission that is released at once; with none it is the engine's
// own cost.
func BenchmarkObservers(b *testing.B) {
	for name, options := range map[string][]actors.Option{
		"none":  nil,
		"calls": {actors.WithCallObserver(func(context.Context, messages.Request, time.Time, error) {})},
		"stages": {actors.WithStageObserver(func(context.Context, messages.Request, []inspect.StageMark,
			error) {
		})},
		"pages": {actors.WithPageObserver(64, func(inspect.PageTime) {})},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, setup{pages: []windows.PageCounts{{Primary: 64}}}, options...)
			defer r.close()
			admit := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: run(0, 128)}}}
			release := &messages.Release{Steps: make([]messages.ReleaseStep, 1)}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Do(ctx, admit); err != nil || admit.Results[0].Err != nil {
					b.Fatal(err, admit.Results[0].Err)
				}
				release.Steps[0].Sequence = admit.Results[0].Sequence
				if err := r.Do(ctx, release); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
