// Package live opens the engine of package actors for a script: all actors, the
// simulated device with real bytes, and the hazard checker around it.
package live

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// System is the actor system of the process: one serves all engines, since making one costs
// milliseconds. Its own log is silent; the engine's errors come back to the callers.
var System = sync.OnceValue(func() *actor.ActorSystem { return actors.NewSystem(nil) })

// Open starts an engine as a script's open line asks.
func Open(s script.Setup) (*script.Rig, error) {
	memory, err := deviceMemory(s)
	if err != nil {
		return nil, err
	}
	if s.Pages == nil {
		// In a script host_cache_size is for contents alone: neither a store nor copies ahead of demand
		// change what it counts.
		if s.Pages, err = windows.Split(s.Pools, s.Model, s.Cache,
			windows.Budget{DeviceBytes: s.DeviceMemory}); err != nil {
			return nil, err
		}
	}
	device, err := sim.New(sim.Config{MemoryBytes: max(memory, 1), Seed: s.Seed})
	if err != nil {
		return nil, fmt.Errorf("simulated device: %w", err)
	}
	checked := check.Wrap(device, check.Options{})
	compute, err := checked.NewStream("compute")
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	points := &enginetest.Failpoints{}
	options := []actors.Option{
		actors.WithClock(s.Clock.Now), actors.WithRestartLimit(maxFailures, time.Second),
		enginetest.WithFailpoints(points),
	}
	if s.Store != nil {
		options = append(options, actors.WithStore(storeConfig(s.Store)))
	}
	e, err := actors.Spawn(System().Root, actors.Config{Model: s.Model, Cache: s.Cache, Pages: s.Pages,
		Device: checked, Weights: s.Weights}, options...)
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	// nothing is under way when it is asked
	look := &host.Inspector{Launcher: device, Stream: compute, Drain: device.Drain}
	rig := &script.Rig{
		Engine: e, Launcher: checked, Compute: compute, Pools: e.DevicePools(),
		Drain:      device.Drain,
		Bytes:      look.Bytes,
		Hazards:    checked.Problems,
		FailCopies: func(d gpu.Direction, n int) error { device.Fail(d, n); return nil },
		PanicActor: points.Arm,
		Close:      device.Close,
	}
	if s.Store != nil {
		rig.Store = actors.StoreOf(e)
	}
	return rig, nil
}

// storeConfig makes what is saved a function of the script alone: nothing is dropped for
// want of room or because a copy is under way, and one batch is written after the other. A
// script may have a store without host memory: then it fetches nothing.
func storeConfig(s *script.Store) actors.StoreConfig {
	return actors.StoreConfig{
		Store: s.Memory, Model: "script", Save: s.Save, MinPriority: s.MinPriority,
		WriteOnly: true, SaveBytes: maxBytes, FetchBytes: maxBytes, Concurrency: 1,
		BreakerFailures: -1, WaitForCopies: true,
	}
}

// maxFailures is how many panics of actors a script may ask for between two
// advances of its clock, which stands still otherwise: a script that tries out
// failures is not an engine that fails again and again.
const maxFailures = 1 << 16

// Limits of what a script may ask of this machine, refused before any memory is
// touched. A page costs some 120 bytes of bookkeeping; the bytes of pages are
// touched only when they are written.
const (
	maxPages = 1 << 24 // both tiers of all pools
	maxBytes = 1 << 40 // the same
)

// deviceMemory is the memory of the simulated device. Page counts override the
// split, so they decide the memory too.
func deviceMemory(s script.Setup) (int64, error) {
	if s.Pages == nil {
		return s.DeviceMemory, nil
	}
	pages, bytes, memory := int64(0), float64(0), int64(0)
	for i, p := range s.Pools {
		n := int64(s.Pages[i].Primary) + int64(s.Pages[i].Secondary)
		pages += n
		bytes += float64(n) * float64(p.PageBytes())
		if pages <= maxPages && bytes <= maxBytes {
			memory += p.PageBytes() * int64(s.Pages[i].Primary)
		}
	}
	if pages > maxPages || bytes > maxBytes {
		return 0, refusals.New(messages.ErrConfigInvalid,
			"%d pages of %.0f bytes in all are more than the %d pages and %d bytes that a script may use",
			pages, bytes, maxPages, int64(maxBytes))
	}
	return memory, nil
}
