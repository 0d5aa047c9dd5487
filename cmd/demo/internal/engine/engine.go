package engine

import (
	"context"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Engine is what the demo asks of a cache engine. Its methods may be called
// from several goroutines; every refusal is a *messages.Refusal.
type Engine interface {
	Admit(context.Context, messages.AdmitRequest) (messages.Admitted, error)
	AdmitBatch(context.Context, []messages.AdmitRequest) ([]messages.Admitted, error)
	Commit(context.Context, []messages.CommitStep) ([]messages.StepResult, error)
	Append(context.Context, []messages.AppendStep) ([]messages.StepResult, error)
	Release(context.Context, []messages.ReleaseStep) ([]messages.StepResult, error)
	TablesOf(context.Context, messages.SequenceID) (messages.Tables, error)
	Do(context.Context, messages.Request) error
	Lookup(context.Context, messages.Prefix) (messages.Found, error)
	Prefetch(context.Context, messages.Prefix) (int, error)
	Stats(context.Context) (inspect.Stats, error)
	Contents(context.Context) ([]protocol.Content, error)
	Check(context.Context) error
	Pools() []messages.PoolInfo
	DevicePools() []gpu.Pool // by PoolID
	Close(context.Context) (int, error)
}

// With starts engines of package actors with options, each in an actor system of its
// own, whose log is not for the readers of the demo's output. The engine that it gives
// is an *actors.Engine.
func With(options ...actors.Option) Spawn {
	return func(s Setup) (Engine, func(), error) { return spawn(s, options) }
}

func spawn(s Setup, options []actors.Option) (Engine, func(), error) {
	system := actors.NewSystem(nil)
	all := append([]actors.Option{actors.WithClock(s.Clock)}, options...)
	if s.OnCall != nil {
		all = append(all, actors.WithCallObserver(s.OnCall))
	}
	e, err := actors.Spawn(system.Root, actors.Config{
		Model: s.Model, Cache: s.Cache, Pages: s.Pages, Device: s.Device,
	}, all...)
	if err != nil {
		system.Shutdown()
		return nil, nil, err
	}
	return e, system.Shutdown, nil
}

// Readable gives an engine of package actors the names of kvactor.Engine's methods, for package
// wire.
type Readable struct{ *actors.Engine }

// Events reads what has changed.
func (r Readable) Events(ctx context.Context, id kvevents.ReaderID) (kvevents.EventBatch, error) {
	return r.EventsOf(ctx, id)
}

// Snapshot reads what is there.
func (r Readable) Snapshot(ctx context.Context, id kvevents.ReaderID) (kvevents.EventBatch, error) {
	return r.SnapshotOf(ctx, id)
}
