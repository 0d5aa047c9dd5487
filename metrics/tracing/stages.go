package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// StageObserver makes a function for actors.WithStageObserver: Observer with a span for each
// stage of the call below that of the call, such as kvactor.stage.match. It takes the place
// of Observer.
func StageObserver(t trace.Tracer) func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error) {
	return func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error) {
		ended := time.Now()
		began := ended
		if len(stages) > 0 {
			began = stages[0].Began
		}
		inside, span := begin(ctx, t, request, began, err)
		if span == nil {
			return
		}
		// The end of the last stage is that of the call, so that no span is longer than the
		// one above it.
		defer span.End(trace.WithTimestamp(ended))
		if !span.IsRecording() {
			return
		}
		for i, s := range stages {
			to := ended
			if i+1 < len(stages) {
				to = stages[i+1].Began
			}
			_, stage := t.Start(inside, "kvactor.stage."+string(s.Stage), trace.WithTimestamp(s.Began), trace.WithSpanKind(trace.SpanKindInternal))
			stage.End(trace.WithTimestamp(to))
		}
	}
}
