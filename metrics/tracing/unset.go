package tracing

import (
	"reflect"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// globalPackage is the package of the tracers that otel.Tracer returns before a program has set a
// provider, and of the provider that otel.GetTracerProvider returns until then.
const globalPackage = "go.opentelemetry.io/otel/internal/global"

// askedEvery is how often a tracer without a provider is asked for a span all the same: once in so
// many calls. An agent that makes spans for a program from outside (automatic instrumentation of
// OpenTelemetry) attaches at any time and changes no provider.
const askedEvery = 64

// unset tells for which calls a tracer need not be asked, because its program has set no provider
// of tracers: the tracer makes no spans then. To ask it takes three allocations a call, and code
// that is in no processor's cache: 2 % of a decode step of 512 sequences.
//
// It may be used by many goroutines.
type unset struct {
	// provider is the one of the program that has set none; nil: the tracer has a provider of
	// its own. The tracer makes spans as soon as the program has another one.
	provider trace.TracerProvider
	calls    atomic.Uint32
	attached atomic.Bool // a span of the tracer is recorded, though the program has set no provider
}

// newUnset looks at a tracer. The types are those of a package that exports none of them, so they
// are known by their names; a tracer of another name is always asked.
func newUnset(t trace.Tracer) *unset {
	provider := otel.GetTracerProvider()
	if !global(t) || !global(provider) {
		return &unset{}
	}
	return &unset{provider: provider}
}

// global tells whether a value is a pointer to a type of globalPackage. Pointers can be compared,
// so that providers may be.
func global(x any) bool {
	t := reflect.TypeOf(x)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == globalPackage
}

// skips tells whether the tracer need not be asked for the span of a call.
func (u *unset) skips() bool {
	return u.provider != nil && otel.GetTracerProvider() == u.provider && !u.attached.Load() &&
		u.calls.Add(1)%askedEvery != 0
}

// recorded notes that the tracer has made a span that is recorded.
func (u *unset) recorded() {
	if u.provider != nil {
		u.attached.Store(true)
	}
}
