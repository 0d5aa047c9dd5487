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
	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/windows"
	"bytes"
	"strings"
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
// openOracle opens the oracle: decisions and counts, no device and no bytes.
func openOracle(s script.Setup) (*script.Rig, error) {
	pages := s.Pages
	if pages == nil {
		var err error
		pages, err = windows.Split(s.Pools, s.Model, s.Cache, windows.Budget{DeviceBytes: s.DeviceMemory})
		if err != nil {
			return nil, err
		}
	}
	c := oracle.Config{
		TokensPerBlock: s.Cache.TokensPerBlock, MaxSeqLen: s.Model.MaxSeqLen,
		SecondaryOffloadMinPriority: s.Cache.SecondaryOffloadMinPriority,
		OnboardBlocks:               s.Cache.OnboardBlocks, BlockReuse: s.Cache.EnableBlockReuse,
		PartialReuse: s.Cache.EnablePartialReuse, CopyOnPartialReuse: s.Cache.CopyOnPartialReuse,
		EventLimit: s.Cache.EventBufferMaxSize, Clock: s.Clock.Now,
	}
	for i, p := range s.Pools {
		c.Pools = append(c.Pools, oracle.PoolConfig{
			Name: p.Name, Window: p.Window, Sink: p.Sink, KVHeads: p.KVHeads, Layers: p.Layers,
			PageBytes: p.PageBytes(), Primary: pages[i].Primary, Secondary: pages[i].Secondary,
		})
	}
	return &script.Rig{Engine: oracle.New(c)}, nil
}


func TestDiff(t *testing.T) {
	bad := 0
	for seed := range uint64(400) {
		req := scripttest.Random(seed, 60)
		var want, got bytes.Buffer
		if err := script.Run(bytes.NewReader(req), &want, openOracle); err != nil { t.Fatal(err) }
		func() {
			defer func() { if r := recover(); r != nil { t.Errorf("seed %d: panic %v", seed, r); bad++ } }()
			if err := script.Run(bytes.NewReader(req), &got, open); err != nil { t.Errorf("seed %d: %v", seed, err) }
		}()
		if err := script.Equal(got.Bytes(), want.Bytes(), script.Protocol); err != nil {
			bad++
			var n int
			fmt.Sscanf(err.Error(), "answer %d", &n)
			lines := strings.Split(string(req), "\n")
			if n > 0 && bad < 12 { t.Errorf("seed %d: %s\n   req %s", seed, err, lines[n-1]) }
		}
	}
	t.Logf("bad %d of 400", bad)
}
