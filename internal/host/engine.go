package host

import (
	"context"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Engine is what a host asks of an engine, whichever stands behind it: the real
// one, a naive one to compare it with, a fake.
type Engine interface {
	Admit(context.Context, messages.AdmitRequest) (messages.Admitted, error)
	AdmitBatch(context.Context, []messages.AdmitRequest) ([]messages.Admitted, error)
	Commit(context.Context, []messages.CommitStep) ([]messages.StepResult, error)
	Append(context.Context, []messages.AppendStep) ([]messages.StepResult, error)
	RewindOne(context.Context, messages.SequenceID, int) error
	Fork(context.Context, []messages.ForkStep) ([]messages.ForkResult, error)
	Release(context.Context, []messages.ReleaseStep) ([]messages.StepResult, error)
	TablesOf(context.Context, messages.SequenceID) (messages.Tables, error)

	Lookup(context.Context, messages.Prefix) (messages.Found, error)
	Pin(context.Context, messages.Prefix) (messages.Pinned, error)
	Unpin(context.Context, messages.PinID) error
	Invalidate(context.Context, messages.Selector) (int, error)
	Prefetch(context.Context, messages.Prefix) (int, error)
	Reset(context.Context) error
	ResetRunning(context.Context) error
	SetWeights(context.Context, string) error
	Rebalance(context.Context, map[string]float64) (messages.Rebalanced, error)

	Stats(context.Context) (inspect.Stats, error)
	Events(context.Context) (kvevents.EventBatch, error)
	Snapshot(context.Context) (kvevents.EventBatch, error)
	Contents(context.Context) ([]protocol.Content, error)
	Check(context.Context) error
	Pools() []messages.PoolInfo
	Close(context.Context) (int, error)
}
