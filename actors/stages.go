package actors

import (
	"context"
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// stages are the stages of one call. The engine writes them while the call is the
// engine's, and the caller reads them when it is answered.
//
// Invariant: there is a mark, the queue's, from the begin of the call on.
type stages struct{ marks []inspect.StageMark }

// begin begins a stage, unless the call is in it; nil: no one asks.
//
// Several messages of one stage make one mark: a mark is when the stage began, and it ends
// with the next.
func (s *stages) begin(stage inspect.Stage) {
	if s == nil || s.marks[len(s.marks)-1].Stage == stage {
		return
	}
	// Since reads one clock, the monotonic one; Now reads two.
	began := s.marks[0].Began
	s.marks = append(s.marks, inspect.StageMark{Stage: stage, Began: began.Add(time.Since(began))})
}

// observed is a call that an observer is told of.
type observed struct {
	engine  *Engine
	ctx     context.Context
	request messages.Request
	began   time.Time
	stages  *stages // nil: only the call is observed
}

// observe begins to observe a call; false if there is no observer.
//
// Without observers it costs two comparisons and reads no clock.
func observe(ctx context.Context, e *Engine, request messages.Request) (o observed, is bool) {
	if e.settings.OnCall == nil && e.settings.OnStages == nil {
		return o, false
	}
	o = observed{engine: e, ctx: ctx, request: request, began: time.Now()}
	if e.settings.OnStages != nil {
		o.stages = &stages{marks: []inspect.StageMark{{Stage: inspect.StageQueue, Began: o.began}}}
	}
	return o, true
}

// end tells the observers.
func (o *observed) end(err error) {
	s := &o.engine.settings
	if s.OnCall != nil {
		s.OnCall(o.ctx, o.request, o.began, err)
	}
	if s.OnStages != nil {
		s.OnStages(o.ctx, o.request, o.stages.marks, err)
	}
}

// before returns a function that tells the observers first. The receiver is a copy, so that a
// Submit without observers allocates nothing for it.
func (o observed) before(done func(error)) func(error) {
	return func(err error) {
		o.end(err)
		done(err)
	}
}

// stageOfTree is the stage that a message to the tree belongs to.
func stageOfTree(message any) inspect.Stage {
	if _, matches := message.(*protocol.Match); matches {
		return inspect.StageMatch
	}
	return inspect.StageApply
}

// stageOfPool is the stage that work of a pool belongs to.
func stageOfPool(w *protocol.PoolWork) inspect.Stage {
	if len(w.Ops) == 0 {
		return inspect.StageApply
	}
	kind := w.Ops[0].Kind
	// An admission that reuses part of a block claims it before it takes pages.
	if kind == protocol.Claim {
		kind = w.Ops[len(w.Ops)-1].Kind
	}
	switch kind {
	case protocol.Claim, protocol.Unclaim, protocol.Inspect, protocol.AddPins:
		return inspect.StageMatch
	case protocol.Take, protocol.TakeForCheckpoint, protocol.Drop:
		return inspect.StageTake
	default:
		return inspect.StageApply
	}
}
