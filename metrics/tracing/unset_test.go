package tracing

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// bothObservers are the observers of a tracer, each of which is told of a call.
func bothObservers(t trace.Tracer) []func() {
	ctx, m, marks := context.Background(), &messages.Append{},
		[]inspect.StageMark{{Stage: inspect.StageQueue, Began: time.Now()}}
	calls, stages := Observer(t), StageObserver(t)
	return []func(){
		func() { calls(ctx, m, marks[0].Began, nil) },
		func() { stages(ctx, m, marks, nil) },
	}
}

// A tracer of a program without a provider costs no allocation. As soon as the program sets one,
// each call has its spans.
func TestAProviderThatIsSetLater(t *testing.T) {
	first := global(otel.GetTracerProvider()) // else an earlier run of this test has set one
	observers := bothObservers(otel.Tracer("kvactor"))
	recorder := tracetest.NewInMemoryExporter()
	for _, observe := range observers {
		observe()
		if first {
			assert.Zero(t, testing.AllocsPerRun(10*askedEvery, observe))
		}
	}
	assert.Empty(t, recorder.GetSpans())
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(recorder)))
	if !first {
		// The tracer from before belongs to the first provider that a program sets.
		observers = bothObservers(otel.Tracer("kvactor"))
	}
	for _, observe := range observers {
		for range 3 {
			observe()
		}
	}
	assert.Len(t, recorder.GetSpans(), 3+3*2, "three calls of an observer, three with one stage each")
}

// One call in 64 asks a tracer whose program has set no provider. Once a span of it is recorded, an
// agent has attached to the program, and all calls ask.
func TestATracerWithoutAProviderIsAskedNowAndThen(t *testing.T) {
	provider := otel.GetTracerProvider()
	u := &unset{provider: provider}
	count := func() (asked int) {
		for range 10 * askedEvery {
			if !u.skips() {
				asked++
			}
		}
		return asked
	}
	assert.Equal(t, 10, count())
	u.recorded()
	assert.Equal(t, 10*askedEvery, count())
}

// A tracer with a provider is always asked.
func TestATracerWithAProviderIsAlwaysAsked(t *testing.T) {
	for _, tracer := range []trace.Tracer{nil, noop.Tracer{}, sdk.NewTracerProvider().Tracer("")} {
		u := newUnset(tracer)
		for range 2 * askedEvery {
			assert.False(t, u.skips())
		}
		u.recorded()
		assert.False(t, u.attached.Load())
	}
}
