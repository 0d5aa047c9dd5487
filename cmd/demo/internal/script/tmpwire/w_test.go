package tmpwire

import (
	"context"
	"os"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/cmd/demo/internal/script/scripttest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
)

func open(s script.Setup) (*script.Rig, error) {
	device, err := sim.New(sim.Config{MemoryBytes: s.DeviceMemory, Seed: s.Seed})
	if err != nil {
		return nil, err
	}
	checked := check.Wrap(device, check.Options{})
	sys := actor.NewActorSystem()
	e, err := actors.Spawn(sys.Root, actors.Config{Model: s.Model, Cache: s.Cache, Pages: s.Pages, Device: checked}, actors.WithClock(s.Clock.Now))
	if err != nil {
		return nil, err
	}
	st, err := checked.NewStream("compute")
	if err != nil {
		return nil, err
	}
	in := &host.Inspector{Launcher: device, Stream: st, Drain: device.Drain}
	return &script.Rig{
		Engine: e, Launcher: checked, Compute: st, Pools: e.DevicePools(),
		Drain: func(context.Context) error { device.Drain(); return nil },
		Bytes: in.Bytes, Hazards: checked.Problems,
		FailCopies: func(d gpu.Direction, n int) error { device.Fail(d, n); return nil },
		Close:      checked.Close,
	}, nil
}

func TestX(t *testing.T) {
	scripttest.Examples{Folder: os.Getenv("DIR"), Modulo: script.Protocol, Open: open}.Run(t)
}
