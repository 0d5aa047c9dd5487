package actors

import (
	"log/slog"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Config says what an engine is made of.
type Config struct {
	Model windows.Model
	// Cache starts from windows.DefaultConfig, or has the fields alone that differ from it.
	Cache windows.Config
	// Pages are the exact page counts of each pool, by PoolID, the cross pool
	// last. With nil the engine splits the device's free memory and
	// Cache.HostCacheSize as Cache.ForMixedLengths says. Otherwise Pages alone decides how many
	// pages each tier has: Cache.HostCacheSize is not looked at, and a pool with
	// secondary pages offloads even where it is 0.
	Pages []windows.PageCounts
	// Memory, by PoolID, is memory of the host's that the pools' pages lie in; nil, or
	// a zero PoolMemory: the engine takes the memory of the pool from the device.
	// Memory needs Pages.
	Memory []PoolMemory
	// Device holds the pages. It outlives the engine.
	Device gpu.Device
	// Weights is the epoch of the weights that the engine begins with.
	Weights string
}

// validate fills in the defaults of the cache, and refuses all values that are wrong by
// themselves, also those of a store, which may be nil.
func (c *Config) validate(store *StoreConfig) error {
	c.Cache = c.Cache.WithDefaults()
	if c.Pages == nil {
		c.Cache = c.Cache.ForMixedLengths(c.Model)
	}
	problems := []error{c.Cache.Validate(c.Model)}
	if c.Device == nil {
		problems = append(problems, refusals.New(messages.ErrConfigInvalid,
			"Config.Device is nil: gpu/sim, gpu/host and gpu/cuda have devices"))
	}
	return windows.Join(append(problems, store.problems()...)...)
}

// resolve returns the pools of a valid configuration with their page counts.
//
// Memory is measured here and taken later. On a device that others use, too, there may be
// less by then, and the device refuses the pools.
func (c *Config) resolve() ([]windows.Pool, []windows.PageCounts, error) {
	pools, err := windows.Pools(c.Model, c.Cache)
	if err != nil {
		return nil, nil, err
	}
	cross, encodes := windows.CrossPool(c.Model, c.Cache)
	all := pools
	if encodes {
		all = append(all, cross)
	}
	if c.Pages != nil {
		return all, c.Pages, windows.Join(validatePages(all, c.Pages), c.validateMemory(all))
	}
	if c.Memory != nil {
		return nil, nil, refusals.New(messages.ErrConfigInvalid,
			"memory needs pages: the engine cannot divide memory that is the host's")
	}
	memory, err := c.Device.Memory()
	if err != nil {
		return nil, nil, err
	}
	budget := windows.Budget{DeviceBytes: memory.Free, HostBytes: c.Cache.HostCacheSize}
	counts, err := windows.Split(pools, c.Model, c.Cache, budget)
	if err != nil || !encodes {
		return all, counts, err
	}
	count, err := windows.SplitCross(c.Model, c.Cache, budget)
	return all, append(counts, count), err
}

// warn logs what a host should know about its configuration and a memory split that it has left
// to the engine.
func (c *Config) warn(log *slog.Logger, pools []windows.Pool, counts []windows.PageCounts) {
	if c.Pages != nil || log == nil {
		return
	}
	if last := len(pools) - 1; pools[last].Kind == windows.KindCross {
		pools, counts = pools[:last], counts[:last]
	}
	for _, w := range windows.Warnings(pools, c.Model, c.Cache, counts) {
		log.Warn(w)
	}
}

// validatePages checks page counts that the host has set, and reports all that are wrong at
// once.
func validatePages(pools []windows.Pool, pages []windows.PageCounts) error {
	if len(pages) != len(pools) {
		return refusals.New(messages.ErrConfigInvalid, "page counts for %d pools, the model has %d",
			len(pages), len(pools))
	}
	var problems []error
	for i, n := range pages {
		if n.Primary < 1 || n.Primary > windows.MaxPages || n.Secondary < 0 ||
			n.Secondary > windows.MaxPages {
			problems = append(problems, refusals.New(messages.ErrConfigInvalid,
				"pool %s: %d primary and %d secondary pages are not in 1 … %d and 0 … %d", pools[i].Name,
				n.Primary, n.Secondary, windows.MaxPages, windows.MaxPages))
		}
	}
	return windows.Join(problems...)
}
