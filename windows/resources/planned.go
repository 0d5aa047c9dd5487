package resources

import (
	"context"
	"errors"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
)

// Planned is an engine for a model whose layers have declared what they keep. It also has the
// memory of the resources that are not in pages: LocalPool has a slot for each running sequence,
// with the number kvactor.Sequence.Slot. The host runs at most Options.MaxSequences sequences at a
// time.
type Planned struct {
	*kvactor.Engine
	Plan  *Plan
	local *Local
}

// Open takes the memory of a plan's local resources on the device, then starts an engine for the
// managed ones in what is left. Its errors are those of kvactor.Open, and of the device.
func Open(plan *Plan, device gpu.Device, list ...kvactor.Option) (*Planned, error) {
	local, err := plan.Allocate(device)
	if err != nil {
		return nil, err
	}
	e, err := kvactor.Open(kvactor.Config{Model: plan.Model, Cache: plan.Cache, Device: device},
		list...)
	if err != nil {
		return nil, errors.Join(err, local.Close())
	}
	return &Planned{Engine: e, Plan: plan, local: local}, nil
}

// View says where a resource lies, by its name: in the pages of a pool, or in the slots of
// LocalPool.
func (p *Planned) View(name string) (View, bool) { return p.Plan.View(name) }

// LocalPool is the device's handle of the local memory, whose page n is slot n; false if no
// resource is local.
func (p *Planned) LocalPool() (gpu.Pool, bool) { return p.local.Pool() }

// ResizeMeasured gives the pools the memory that a trial forward pass has left; see
// Plan.Resize. Sequences follow their pages.
func (p *Planned) ResizeMeasured(ctx context.Context, m Measured) (kvactor.Rebalanced, error) {
	return p.Plan.Resize(ctx, p.Engine, m)
}

// Close ends the engine as kvactor.Engine.Close does, then gives the local memory back.
func (p *Planned) Close(ctx context.Context) (leakedPages int, err error) {
	leakedPages, err = p.Engine.Close(ctx)
	if err == nil {
		err = p.local.Close()
	}
	return leakedPages, err
}
