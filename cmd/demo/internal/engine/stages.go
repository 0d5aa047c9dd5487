package engine

import (
	"context"
	"sync"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// StageObserver is told of each call and its stages, as actors.WithStageObserver says.
type StageObserver func(ctx context.Context, request messages.Request, marks []inspect.StageMark,
	err error)

// stageOrder lists the stages in the order in which a call goes through them.
var stageOrder = []inspect.Stage{
	inspect.StageQueue, inspect.StageMatch, inspect.StageWait, inspect.StageTake, inspect.StageMove,
	inspect.StageApply,
}

// Stages adds up how long the calls that a Meter measures are in each stage. Its methods may be
// called by any number of goroutines.
type Stages struct {
	mu   sync.Mutex
	time [operations]map[inspect.Stage]time.Duration
}

// Observe adds the stages of a call. It is a StageObserver.
func (s *Stages) Observe(
	_ context.Context, request messages.Request, marks []inspect.StageMark, _ error,
) {
	ended := time.Now()
	o, _, measured := operationOf(request)
	if !measured {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.time[o] == nil {
		s.time[o] = map[inspect.Stage]time.Duration{}
	}
	for i, m := range marks {
		to := ended
		if i+1 < len(marks) {
			to = marks[i+1].Began
		}
		s.time[o][m.Stage] += to.Sub(m.Began)
	}
}

// All calls f for every operation and every stage that calls of it were in, in order.
func (s *Stages) All(f func(Operation, inspect.Stage, time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range operations {
		for _, stage := range stageOrder {
			if d, was := s.time[o][stage]; was {
				f(o, stage, d)
			}
		}
	}
}
