package serve

import (
	"context"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
)

// Compute is the host's compute stream: it runs each step as one kernel, which checks before it
// writes, and waits for its end.
type Compute struct {
	*host.Writer
	Step host.Step // the next one: what it waits for, reads and writes is added to it

	rig *engine.Rig
	// Last is the ticket of the last kernel, which has passed, and Busy the simulated time
	// of all kernels.
	Last gpu.Ticket
	Busy time.Duration
}

// NewCompute makes a stream for kernels of the host.
func NewCompute(rig *engine.Rig, name string) (*Compute, error) {
	stream, err := rig.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &Compute{rig: rig, Writer: host.NewWriter(host.WriterConfig{
		Launcher: rig.Launcher, Stream: stream, Pools: rig.DevicePools(), Layouts: rig.Layouts[0],
		Ranks: len(rig.Layouts),
	})}, nil
}

// Run launches the kernel, which lasts as given, and waits for its end.
func (c *Compute) Run(ctx context.Context, lasts time.Duration) error {
	c.Step.Label, c.Step.Nanos = "step", int64(lasts)
	ticket, err := c.Launch(c.Step)
	if err != nil {
		return err
	}
	if err := c.rig.Device.Sync(ctx, ticket); err != nil {
		return err
	}
	c.Last = ticket
	c.Busy += lasts
	c.Step = host.Step{Waits: c.Step.Waits[:0], Reads: c.Step.Reads[:0], Writes: c.Step.Writes[:0]}
	return nil
}
