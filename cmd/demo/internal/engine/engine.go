package engine

import (
	"context"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
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
}
