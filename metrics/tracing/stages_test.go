package tracing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// The stages of an engine's admissions follow one another inside the span of the call.
func TestStagesOfAnEngine(t *testing.T) {
	recorder := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(recorder))
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	engine, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 256},
		Pages:  []kvactor.PageCounts{{Primary: 8}},
		Device: device,
	}, actors.WithStageObserver(StageObserver(provider.Tracer("kvactor"))))
	require.NoError(t, err)
	ctx, outer := provider.Tracer("host").Start(t.Context(), "request")
	s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]messages.Token, 40)})
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), kvactor.Ticket{}))
	outer.End()
	_, err = engine.Close(t.Context())
	require.NoError(t, err)

	spans := map[string]tracetest.SpanStub{}
	for _, span := range recorder.GetSpans() {
		if span.SpanContext.TraceID() == outer.SpanContext().TraceID() {
			spans[span.Name] = span
		}
	}
	admit := spans["kvactor.admit"]
	assert.Equal(t, outer.SpanContext().SpanID(), admit.Parent.SpanID())
	var end time.Time
	for _, name := range []string{"queue", "match", "take"} {
		stage, is := spans["kvactor.stage."+name]
		require.True(t, is, name)
		assert.Equal(t, admit.SpanContext.SpanID(), stage.Parent.SpanID())
		assert.False(t, stage.StartTime.Before(admit.StartTime))
		assert.False(t, stage.EndTime.After(admit.EndTime))
		assert.True(t, end.IsZero() || stage.StartTime.Equal(end), "%s begins when the stage before ends",
			name)
		end = stage.EndTime
	}
}

// A tracer that takes no samples makes no spans of stages.
func TestStagesThatAreNotSampled(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	never := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()), sdk.WithSpanProcessor(recorder))
	for _, tracer := range []trace.Tracer{noop.NewTracerProvider().Tracer(""), never.Tracer("")} {
		observe := StageObserver(tracer)
		observe(t.Context(), &messages.Admit{},
			[]inspect.StageMark{{Stage: inspect.StageQueue, Began: time.Now()}}, nil)
		observe(t.Context(), &inspect.ReadStats{}, nil, nil)
	}
	assert.Empty(t, recorder.Started())
}

// A tracer that is off costs no allocation.
func TestATracerThatIsOffAllocatesNothing(t *testing.T) {
	observe := StageObserver(noop.NewTracerProvider().Tracer(""))
	m, stages := &messages.Append{},
		[]inspect.StageMark{{Stage: inspect.StageQueue, Began: time.Now()}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { observe(t.Context(), m, stages, nil) }))
}

// What an observer of stages costs beside the engine.
func BenchmarkStageObserver(b *testing.B) {
	for name, provider := range map[string]trace.TracerProvider{
		"noop":  noop.NewTracerProvider(),
		"never": sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())),
	} {
		b.Run(name, func(b *testing.B) {
			observe := StageObserver(provider.Tracer(""))
			m := &messages.Append{}
			stages := []inspect.StageMark{{Stage: inspect.StageQueue, Began: time.Now()},
				{Stage: inspect.StageTake, Began: time.Now()}}
			b.ReportAllocs()
			for b.Loop() {
				observe(b.Context(), m, stages, nil)
			}
		})
	}
}
