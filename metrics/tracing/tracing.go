// Package tracing makes OpenTelemetry spans of an engine's calls. The engine does not
// know it: it is told of calls by actors.WithCallObserver, and pays nothing without.
//
//	actors.WithCallObserver(tracing.Observer(otel.Tracer("kvactor")))
//
// A span has the name of its call, such as kvactor.admit, begins when the call began and
// ends with its answer. It is a child of the span in the context of the call. With
//
//	actors.WithStageObserver(tracing.StageObserver(otel.Tracer("kvactor")))
//
// the stages of a call (queue, match, wait, take, move, apply) have spans below it.
package tracing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kvactor/kvactor/internal/calls"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Observer makes a function for actors.WithCallObserver. A tracer that does not sample
// a call costs its own decision and no more. One of a program that has set no provider, as
// otel.Tracer returns it, is asked for one call in 64 until a provider is set.
func Observer(
	t trace.Tracer,
) func(ctx context.Context, request messages.Request, began time.Time, err error) {
	u := newUnset(t)
	return func(ctx context.Context, request messages.Request, began time.Time, err error) {
		if u.skips() {
			return
		}
		if _, span := begin(ctx, t, request, began, err); span != nil {
			if span.IsRecording() {
				u.recorded()
			}
			span.End()
		}
	}
}

// begin makes the span of a call that has been answered, which its caller ends; nil for calls
// that have none.
func begin(
	ctx context.Context, t trace.Tracer, request messages.Request, began time.Time, err error,
) (context.Context, trace.Span) {
	name, items, refusal := calls.Describe(request)
	if items < 0 {
		return ctx, nil
	}
	ctx, span := t.Start(ctx, name, trace.WithTimestamp(began))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.Int("kvactor.items", items))
	if err == nil {
		err = refusal
	}
	if err != nil {
		fail(span, err)
		return ctx, span
	}
	if m, ok := request.(*messages.Admit); ok {
		admitted(span, m)
	}
	return ctx, span
}

// fail sets the status of a span. A refusal's code is an attribute: most refusals, such
// as out_of_pages, are answers like others and no faults.
func fail(span trace.Span, err error) {
	var refusal *messages.Refusal
	if errors.As(err, &refusal) {
		span.SetAttributes(attribute.String("kvactor.refusal", string(refusal.Code)))
		if refusal.Code != messages.ErrInternal && refusal.Code != messages.ErrFailed {
			return
		}
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// admitted says what the requests of a batch have reused together. The name of the
// first attribute is that of the conventions for generative AI.
func admitted(span trace.Span, m *messages.Admit) {
	prompt, reused, onboarded, refused := 0, 0, 0, 0
	for i := range m.Results {
		r := &m.Results[i]
		if r.Err != nil {
			refused++
			continue
		}
		prompt += len(m.Requests[i].Tokens)
		reused += r.ReusedTokens
		for _, p := range r.Reuse {
			onboarded += p.Onboarded
		}
	}
	span.SetAttributes(
		attribute.Int("gen_ai.usage.cache_read.input_tokens", reused),
		attribute.Int("gen_ai.usage.input_tokens", prompt),
		attribute.Int("kvactor.onboarded_pages", onboarded), attribute.Int("kvactor.refused", refused))
	if len(m.Results) == 1 && refused == 0 {
		span.SetAttributes(attribute.String("kvactor.miss_reason", string(m.Results[0].MissReason)))
	}
}

// StageObserver makes a function for actors.WithStageObserver: Observer with a span for each
// stage of the call below that of the call, such as kvactor.stage.match. It takes the place
// of Observer.
//
// A tracer of package noop makes no spans, and is not asked for any. One of a program that has
// set no provider is asked for one call in 64, as by Observer.
func StageObserver(
	t trace.Tracer,
) func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error) {
	if _, off := t.(noop.Tracer); off {
		return func(context.Context, messages.Request, []inspect.StageMark, error) {}
	}
	u := newUnset(t)
	return func(ctx context.Context, request messages.Request, stages []inspect.StageMark, err error) {
		if u.skips() {
			return
		}
		var began, ended time.Time
		if len(stages) > 0 {
			// Since reads one clock, the monotonic one; Now reads two, and takes three times as long.
			began = stages[0].Began
			ended = began.Add(time.Since(began))
		} else {
			began = time.Now()
			ended = began
		}
		inside, span := begin(ctx, t, request, began, err)
		if span == nil {
			return
		}
		// The end of the last stage is that of the call, so that no span is longer than the
		// one above it.
		if !span.IsRecording() {
			span.End() // without the time, which takes an allocation
			return
		}
		u.recorded()
		defer span.End(trace.WithTimestamp(ended))
		for i, s := range stages {
			to := ended
			if i+1 < len(stages) {
				to = stages[i+1].Began
			}
			_, stage := t.Start(inside, "kvactor.stage."+string(s.Stage), trace.WithTimestamp(s.Began))
			stage.End(trace.WithTimestamp(to))
		}
	}
}
