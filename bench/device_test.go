package bench

import (
	"context"
	"math"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// quietDevice is a device without memory on which everything is done at once,
// so that benchmarks time the engine and not a simulation.
type quietDevice struct{ streams, pools int }

var _ gpu.Device = (*quietDevice)(nil)

func (d *quietDevice) Info() gpu.Info { return gpu.Info{Name: "quiet", Backend: "quiet"} }

func (d *quietDevice) Memory() (gpu.Memory, error) {
	return gpu.Memory{Free: math.MaxInt64, Total: math.MaxInt64}, nil
}

func (d *quietDevice) NewStream(string) (gpu.Stream, error) {
	d.streams++
	return gpu.Stream(d.streams), nil
}

func (d *quietDevice) CreatePool(gpu.PoolSpec) (gpu.Pool, error) {
	d.pools++
	return gpu.Pool(d.pools), nil
}

func (d *quietDevice) DestroyStream(gpu.Stream) error { return nil }
func (d *quietDevice) Resize(gpu.Pool, int) error     { return nil }
func (d *quietDevice) DestroyPool(gpu.Pool) error     { return nil }

func (d *quietDevice) Submit(s gpu.Stream, _ *gpu.Batch) (gpu.Ticket, error) {
	return gpu.Ticket{Stream: s}, nil
}

func (d *quietDevice) Fence(s gpu.Stream) (gpu.Ticket, error) {
	return gpu.Ticket{Stream: s}, nil
}
func (d *quietDevice) Wait(gpu.Stream, ...gpu.Ticket) error       { return nil }
func (d *quietDevice) Done(gpu.Ticket) bool                       { return true }
func (d *quietDevice) Sync(context.Context, gpu.Ticket) error     { return nil }
func (d *quietDevice) HostBytes(gpu.Pool, messages.PageID) []byte { return nil }
func (d *quietDevice) Close() error                               { return nil }
