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
	"bytes"
	"fmt"
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
func TestDiff(t *testing.T) { scripttest.Duel{Got: open, Want: scripttest.OpenOracle, Seeds: 100, Requests: 60}.Run(t) }

func TestOne(t *testing.T) {
	req := scripttest.Random(27, 60)
	lines := bytes.Split(req, []byte("\n"))
	// find first prefix with a problem
	for n := 2; n < len(lines); n++ {
		var got bytes.Buffer
		in := append(bytes.Join(lines[:n], []byte("\n")), []byte("\n{\"op\":\"verify\"}\n")...)
		_ = script.Run(bytes.NewReader(in), &got, open)
		out := bytes.Split(bytes.TrimSpace(got.Bytes()), []byte("\n"))
		if !bytes.Contains(out[len(out)-1], []byte("\"problems\":[]")) {
			for i := range n { fmt.Printf("%s\n   %.330s\n", lines[i], out[i]) }
			fmt.Printf("%s\n", out[len(out)-1])
			return
		}
	}
}
