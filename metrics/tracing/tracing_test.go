package tracing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// observed are the spans of one call.
func observed(
	t *testing.T, request messages.Request, err error,
) (parent, spans tracetest.SpanStubs) {
	recorder := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(recorder))
	ctx, outer := provider.Tracer("host").Start(t.Context(), "request")
	Observer(provider.Tracer("kvactor"))(ctx, request, time.Now().Add(-time.Second), err)
	outer.End()
	all := recorder.GetSpans()
	return all[len(all)-1:], all[:len(all)-1]
}

// A span begins with its call and hangs below that of the host.
func TestAnAdmissionIsASpan(t *testing.T) {
	parent, spans := observed(t, &messages.Admit{
		Requests: []messages.AdmitRequest{{Tokens: make([]messages.Token, 9)}},
		Results: []messages.Admitted{{ReusedTokens: 4, MissReason: messages.ReasonCold,
			Reuse: []messages.PoolReuse{{Onboarded: 2}}}},
	}, nil)
	require.Len(t, spans, 1)
	assert.Equal(t, "kvactor.admit", spans[0].Name)
	assert.Equal(t, parent[0].SpanContext.SpanID(), spans[0].Parent.SpanID())
	assert.GreaterOrEqual(t, spans[0].EndTime.Sub(spans[0].StartTime), time.Second)
	assert.ElementsMatch(t, []attribute.KeyValue{
		attribute.Int("kvactor.items", 1), attribute.Int("gen_ai.usage.cache_read.input_tokens", 4),
		attribute.Int("gen_ai.usage.input_tokens", 9), attribute.Int("kvactor.onboarded_pages", 2),
		attribute.Int("kvactor.refused", 0),
		attribute.String("kvactor.miss_reason", "cold"),
	}, spans[0].Attributes)
}

// A refusal is an answer; what the engine failed at is a fault.
func TestRefusalsAndFaults(t *testing.T) {
	for _, c := range []struct {
		request messages.Request
		err     error
		status  codes.Code
		code    string
	}{
		{&messages.Append{Err: &messages.Refusal{Code: messages.ErrOutOfPages}}, nil, codes.Unset,
			"out_of_pages"},
		{&messages.Commit{}, &messages.Refusal{Code: messages.ErrFailed}, codes.Error, "failed"},
		{&messages.Release{}, errors.New("other"), codes.Error, ""},
		{&messages.Lookup{}, context.Canceled, codes.Error, ""},
	} {
		_, spans := observed(t, c.request, c.err)
		require.Len(t, spans, 1)
		assert.Equal(t, c.status, spans[0].Status.Code)
		if c.code != "" {
			assert.Contains(t, spans[0].Attributes, attribute.String("kvactor.refusal", c.code))
		}
	}
}

// Stores and the hand-over of sequences have requests of the engine's own, which say how
// they are called.
func TestStoresAndHandoversAreSpans(t *testing.T) {
	for want, request := range map[string]messages.Request{
		"kvactor.fetch": &protocol.Fetch{}, "kvactor.export": &protocol.TransferPages{},
		"kvactor.import": &protocol.BeginImport{},
	} {
		_, spans := observed(t, request, nil)
		require.Len(t, spans, 1)
		assert.Equal(t, want, spans[0].Name)
	}
}

// Reading the state is no work of the engine's, and makes no span.
func TestReadsMakeNoSpans(t *testing.T) {
	_, spans := observed(t, &inspect.ReadStats{}, nil)
	assert.Empty(t, spans)
}
